"""Opens the stream of a run: its plan, its rows, and how many steps they make."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from llmops_kernel.config.counted import counted
from llmops_kernel.config.models.sections import DataConfig
from llmops_kernel.config.models.train import TrainingConfig
from llmops_kernel.errors import ConfigError, DataError
from llmops_kernel.models.answer_spans import rewrites_answers
from llmops_kernel.store import paths
from llmops_kernel.train.collectives import from_main
from llmops_kernel.train.context import WorkerContext
from llmops_kernel.train.data.examples import Example, divided, format_row, may_divide, tokenise_row
from llmops_kernel.train.data.mixture import exact
from llmops_kernel.train.data.skipped import Fields
from llmops_kernel.train.data.sources import Source
from llmops_kernel.train.data.stream.broken import check_rows
from llmops_kernel.train.data.stream.dataset import StreamedRows, Tokenise
from llmops_kernel.train.data.stream.mix import Mix, source_seed, window_bytes
from llmops_kernel.train.data.stream.order import order
from llmops_kernel.train.data.stream.plan import (
    DIVISION,
    StreamPlan,
    estimated_rows,
    load_counts,
    plan_stream,
)
from llmops_kernel.train.data.stream.progress import StreamProgress
from llmops_kernel.train.data.stream.reader import Row
from llmops_kernel.train.data.stream.walk import Walk
from llmops_kernel.train.hooks import Hooks

_SAMPLED_ROWS = 64
_MOST_AHEAD = 4096


@dataclass(frozen=True)
class Stream:
    rows: StreamedRows
    progress: StreamProgress
    sample: Sequence[Example]
    """The first rows, the same on all workers."""
    total_steps: int
    num_rows: int | None
    """Rows of an epoch; None until all lines have been counted."""
    is_estimate: bool
    """True if the steps are estimated: lines are not counted yet, or long texts are split."""
    unused: tuple[str, ...] = ()
    """Columns of the first rows that are not used."""
    has_chats: bool = False
    """True if some of the first rows are chats."""


def open_stream(
    config: TrainingConfig,
    sources: Sequence[Source],
    *,
    tokenizer: Any,
    hooks: Hooks,
    context: WorkerContext,
    division: int | None = None,
) -> Stream:
    """Open the training rows. Reads a few parts of them at most, unless all are to be checked.

    `division`: that of the checkpoint that is resumed from. Raises `DataError`, and `ConfigError`
    for an argument that no stream can follow.
    """
    data = config.data
    _check_arguments(config)
    cache = context.cache or paths.cache()
    plans = [
        plan_stream(source, cache=cache, counted=data.is_mixture, division=division or DIVISION)
        for source in sources
    ]
    mix = _mix(config, plans, context, cache)
    formats: set[str] = set()
    rows = _rows(config, mix, tokenizer, hooks, formats)
    divides = _may_divide(config, hooks, tokenizer)
    # Other nodes may have counted more lines: all workers must make the same number of steps.
    total_steps, num_rows, is_estimate = from_main(
        totals(config, mix, rows.sequences_a_row(divides))
    )
    progress = StreamProgress(
        context,
        rows,
        rows_per_step=rows_per_step(config),
        ends_with_rows=mix.num_epochs is not None,
        max_length=data.max_length,
        tokenizer=tokenizer,
        cache=cache,
    )
    check_rows(
        config, plans, hooks, rank=mix.rank, world=mix.world, cache=cache, tokenizer=tokenizer
    )
    # A wrong format is found here, at the first broken row, before the model is loaded.
    sample = rows.sample(_SAMPLED_ROWS)
    columns = progress.say_fields()
    chats = "messages" in formats
    return Stream(rows, progress, sample, total_steps, num_rows, is_estimate, columns, chats)


def _check_arguments(config: TrainingConfig) -> None:
    """Refuse what a config may say as long as nobody knows that its rows will be streamed."""
    if config.training_arguments.get("ignore_data_skip"):
        raise ConfigError(
            f"training_arguments.ignore_data_skip does not work with streamed rows, and"
            f" {config.data.train_words} is streamed: a resumed run would begin with its first rows"
            " again.",
            remedy="remove ignore_data_skip (rows before the checkpoint are not read again), or"
            " set data.streaming=false",
        )


def _mix(
    config: TrainingConfig, plans: Sequence[StreamPlan], context: WorkerContext, cache: Path
) -> Mix:
    weights = [source.weight for source in config.data.sources]
    sizes = window_bytes(plans, weights)
    walks = [
        Walk(
            plan,
            rank=context.rank,
            world=context.world_size,
            seed=source_seed(config.seed, number),
            shuffle=config.data.shuffle,
            num_epochs=whole_epochs(config),
            counts=load_counts(plan, cache),
            weight=weight,
            window_bytes=size,
            turn=number,
        )
        for number, (plan, weight, size) in enumerate(zip(plans, weights, sizes, strict=True))
    ]
    return Mix(walks, config.seed)


def _rows(
    config: TrainingConfig, mix: Mix, tokenizer: Any, hooks: Hooks, formats: set[str]
) -> StreamedRows:
    # Of its own: a fast tokenizer must not be used by two threads at once.
    mine = copy.deepcopy(tokenizer)
    sources = [config.data.of(source) for source in config.data.sources]
    fields = Fields()
    return StreamedRows(
        mix,
        [_tokenises(data, mine, hooks, fields, formats) for data in sources],
        fields=fields,
        micro_batch_size=config.micro_batch_size,
        ahead=min(_MOST_AHEAD, 4 * rows_per_step(config) + _SAMPLED_ROWS),
        skip_broken=config.data.on_error == "skip",
        blank_token=tokenizer.pad_token_id or 0,
    )


def _may_divide(config: TrainingConfig, hooks: Hooks, tokenizer: Any) -> list[bool]:
    """Return for each source whether a row may become several sequences."""
    has_hook = hooks.format_example is not None
    sources = [config.data.of(source) for source in config.data.sources]
    chats_too = config.data.loss_on != "all" and rewrites_answers(tokenizer)
    return [
        may_divide(data, has_hook=has_hook) or (chats_too and data.format != "text")
        for data in sources
    ]


def _tokenises(
    data: DataConfig, tokenizer: Any, hooks: Hooks, fields: Fields, formats: set[str]
) -> Tokenise:
    """Return what makes examples of a source's rows, and adds to `formats` what they are."""

    def tokenised(row: Row, label: str) -> tuple[Sequence[Example], bool]:
        formatted = format_row(row, label, data, hooks, fields)
        formats.add("text" if "text" in formatted else "messages")
        return divided(tokenise_row(formatted, label, tokenizer, data), formatted, data)

    return tokenised


# --- The number of rows of a streamed epoch, and of the steps they make ---


_MOST_ORDERED = 200_000
"""Parts, in all epochs, up to which each worker's exact number of rows is worked out."""


def rows_per_step(config: TrainingConfig) -> int:
    """Return the sequences of one worker in a step."""
    return config.micro_batch_size * config.gradient_accumulation_steps


def whole_epochs(config: TrainingConfig) -> int | None:
    """Return the epochs of a training that ends with its rows; None if its steps are given."""
    epochs = config.training.num_epochs
    return None if config.training.max_steps or epochs != int(epochs) else int(epochs)


def totals(
    config: TrainingConfig, mix: Mix, sequences_a_row: Sequence[float]
) -> tuple[int, int | None, bool]:
    """Return the steps of the training, the rows of an epoch if they are known, and whether the
    steps are an estimate.

    `sequences_a_row`: of each source, more than 1 where long texts are split. Raises DataError.
    """
    training = config.training
    if training.max_steps:
        known_rows = [_known_rows(walk) for walk in mix.walks]
        num_rows = None if None in known_rows else sum(filter(None, known_rows))
        return training.max_steps, num_rows, False
    epoch_rows = [_walk_rows(walk) for walk in mix.walks]
    rows, is_exact = (
        sum(count for count, _ in epoch_rows),
        all(exactly for _, exactly in epoch_rows),
    )
    if rows < mix.world:
        raise DataError(
            f"{counted(rows, 'row')} cannot be divided among {mix.world} workers.",
            remedy=f"set parallelism.num_workers={max(1, rows)}, or give more rows",
        )
    num_rows = rows if is_exact else None
    is_split = any(number > 1 for number in sequences_a_row)
    longest = _longest_share(mix) if is_exact and not is_split else None
    if longest is None:
        counts = zip(epoch_rows, sequences_a_row, strict=True)
        sequences = sum(count * number for (count, _), number in counts)
        longest = math.ceil(sequences * training.num_epochs / mix.world)
    steps = max(1, math.ceil(longest / rows_per_step(config)))
    return steps, num_rows, is_split or not is_exact


def _walk_rows(walk: Walk) -> tuple[int, bool]:
    """Return the rows of a source in an epoch, and whether their number is exact."""
    rows, is_exact = estimated_rows(walk.plan, walk.counts)
    return _in_epoch(walk, rows), is_exact


def _in_epoch(walk: Walk, rows: int) -> int:
    return round(exact(walk.weight) * rows)


def _known_rows(walk: Walk) -> int | None:
    part_rows = [_rows_of(walk, part) for part in range(len(walk.plan.parts))]
    return None if None in part_rows else _in_epoch(walk, sum(filter(None, part_rows)))


def _rows_of(walk: Walk, part: int) -> int | None:
    rows = walk.plan.parts[part].num_rows
    return walk.counts.get(part) if rows is None else rows


def _longest_share(mix: Mix) -> int | None:
    """Return the rows of the worker with the most, in all epochs; None if that is not known."""
    sums = [0] * mix.world
    for walk in mix.walks:
        shares = _shares(walk)
        if shares is None:
            return None
        for rank in range(mix.world):
            sums[rank] += shares[(rank + walk.turn) % mix.world]
    return max(sums)


def _shares(walk: Walk) -> list[int] | None:
    """Return the rows of each share of a source, in all epochs."""
    epochs, parts = walk.num_epochs, walk.plan.parts
    if epochs is None or epochs * len(parts) * math.ceil(walk.weight) > _MOST_ORDERED:
        return None
    sums = [0] * walk.world
    for epoch in range(epochs):
        shares = order(
            parts,
            seed=walk.seed,
            epoch=epoch,
            world=walk.world,
            shuffle=walk.shuffle,
            weight=walk.weight,
        )
        for number, pieces in enumerate(shares):
            for piece in pieces:
                end = _rows_of(walk, piece.part) if piece.end is None else piece.end
                if end is None:
                    return None
                sums[number] += end - piece.begin
    return sums
