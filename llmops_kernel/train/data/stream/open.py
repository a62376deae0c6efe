"""Opens the stream of a run: its plan, its rows, and how many steps they make."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from llmops_kernel.config.models.sections import DataConfig
from llmops_kernel.config.models.train import TrainingConfig
from llmops_kernel.errors import ConfigError
from llmops_kernel.store import paths
from llmops_kernel.train.collectives import from_main
from llmops_kernel.train.context import WorkerContext
from llmops_kernel.train.data.answer_spans import rewrites_answers
from llmops_kernel.train.data.examples import Example, divided, format_row, tokenise_row
from llmops_kernel.train.data.long_texts import may_divide
from llmops_kernel.train.data.mixture.mix import Mix, source_seed, window_bytes
from llmops_kernel.train.data.skipped import Fields
from llmops_kernel.train.data.stream.broken import check_rows
from llmops_kernel.train.data.stream.dataset import StreamedRows, Tokenise
from llmops_kernel.train.data.stream.plan import (
    DIVISION,
    StreamPlan,
    load_counts,
    plan_stream,
)
from llmops_kernel.train.data.stream.progress import StreamProgress
from llmops_kernel.train.data.stream.reader import Row
from llmops_kernel.train.data.stream.totals import rows_per_step, totals, whole_epochs
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
    roots = (context.workspace, *context.fallback_workspaces)
    plans = _plans(data, roots, cache, division or DIVISION)
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
        config,
        plans,
        hooks,
        rank=mix.rank,
        world=mix.world,
        cache=cache,
        tokenizer=tokenizer,
    )
    # A wrong format is found here, at the first broken row, before the model is loaded.
    sample = rows.sample(_SAMPLED_ROWS)
    columns = progress.say_fields()
    chats = "messages" in formats
    return Stream(rows, progress, sample, total_steps, num_rows, is_estimate, columns, chats)


def _plans(data: DataConfig, roots: Sequence[Path], cache: Path, division: int) -> list[StreamPlan]:
    return [
        plan_stream(
            source.path,
            roots=roots,
            split=source.train_split or "train",
            cache=cache,
            counted=data.is_mixture,
            division=division,
        )
        for source in data.sources
    ]


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
        micro_batch_size=config.training.micro_batch_size,
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
