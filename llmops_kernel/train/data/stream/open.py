"""Opens the stream of a run: its plan, its rows, and how many steps they make."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from llmops_kernel.config.counted import counted
from llmops_kernel.config.models.train import TrainingConfig
from llmops_kernel.errors import ConfigError, DataError
from llmops_kernel.store import paths
from llmops_kernel.train.collectives import from_main
from llmops_kernel.train.context import WorkerContext
from llmops_kernel.train.data.examples import Example, cut, format_row, tokenise_row
from llmops_kernel.train.data.stream.dataset import StreamedRows
from llmops_kernel.train.data.stream.order import order
from llmops_kernel.train.data.stream.plan import estimated_rows, load_counts, plan_stream
from llmops_kernel.train.data.stream.progress import StreamProgress
from llmops_kernel.train.data.stream.reader import Row
from llmops_kernel.train.data.stream.walk import Walk
from llmops_kernel.train.hooks import Hooks

_SAMPLED_ROWS = 64
_MOST_ORDERED = 200_000
"""Parts, in all epochs, up to which each worker's exact number of rows is worked out."""
_MOST_AHEAD = 4096


@dataclass(frozen=True)
class Stream:
    rows: StreamedRows
    progress: StreamProgress
    sample: Sequence[Example]
    """The first rows, the same on all workers."""
    total_steps: int
    """An estimate if `num_rows` is None and the config gives no `max_steps`."""
    num_rows: int | None
    """Of an epoch; None until all lines have been counted."""


def open_stream(
    config: TrainingConfig, *, tokenizer: Any, hooks: Hooks, context: WorkerContext
) -> Stream:
    """Open the training rows. Reads a few parts of them at most.

    Raises `DataError`, and `ConfigError` for an argument that no stream can follow.
    """
    data = config.data
    _check_arguments(config)
    cache = context.cache or paths.cache()
    roots = (context.workspace, *context.fallback_workspaces)
    plan = plan_stream(data.train, roots=roots, split=data.train_split, cache=cache)
    walk = Walk(
        plan,
        rank=context.rank,
        world=context.world_size,
        seed=config.seed,
        shuffle=data.shuffle,
        num_epochs=_whole_epochs(config),
        counts=load_counts(plan, cache),
    )
    # Other nodes may have counted more lines: all workers must make the same number of steps.
    total_steps, num_rows = from_main(_totals(config, walk))
    rows = _rows(config, walk, tokenizer, hooks)
    progress = StreamProgress(
        context,
        rows,
        rows_per_step=_rows_per_step(config),
        ends_with_rows=walk.num_epochs is not None,
        max_length=data.max_length,
        cache=cache,
    )
    # A wrong format is found here, before the model is loaded.
    sample = rows.sample(_SAMPLED_ROWS)
    return Stream(rows, progress, sample, total_steps, num_rows)


def _check_arguments(config: TrainingConfig) -> None:
    """Refuse what a config may say as long as nobody knows that its rows will be streamed."""
    if config.training_arguments.get("ignore_data_skip"):
        raise ConfigError(
            f"training_arguments.ignore_data_skip does not work with streamed rows, and"
            f" {config.data.train} is streamed: a resumed run would begin with its first rows"
            " again.",
            remedy="remove ignore_data_skip (rows before the checkpoint are not read again), or"
            " set data.streaming=false",
        )


def _rows(config: TrainingConfig, walk: Walk, tokenizer: Any, hooks: Hooks) -> StreamedRows:
    data = config.data
    # Of its own: a fast tokenizer must not be used by two threads at once.
    mine = copy.deepcopy(tokenizer)

    def tokenised(row: Row, label: str) -> tuple[Example, bool]:
        whole = tokenise_row(format_row(row, label, data, hooks), label, mine, data)
        example = cut(whole, data.max_length)
        return example, example is not whole

    return StreamedRows(
        walk,
        tokenised,
        micro_batch_size=config.training.micro_batch_size,
        ahead=min(_MOST_AHEAD, 4 * _rows_per_step(config) + _SAMPLED_ROWS),
        skip_broken=data.on_error == "skip",
        blank_token=tokenizer.pad_token_id or 0,
    )


def _rows_per_step(config: TrainingConfig) -> int:
    """Return the rows of one worker in a step."""
    return config.training.micro_batch_size * config.gradient_accumulation_steps


def _whole_epochs(config: TrainingConfig) -> int | None:
    """Return the epochs of a training that ends with its rows; None if its steps are given."""
    epochs = config.training.num_epochs
    return None if config.training.max_steps or epochs != int(epochs) else int(epochs)


def _totals(config: TrainingConfig, walk: Walk) -> tuple[int, int | None]:
    """Return the steps of the training, and the rows of an epoch if they are known."""
    training, plan = config.training, walk.plan
    if training.max_steps:
        known = [_rows_of(walk, part) for part in range(len(plan.parts))]
        is_known = None not in known
        return training.max_steps, sum(filter(None, known)) if is_known else None
    rows, is_exact = estimated_rows(plan, walk.counts)
    if rows < walk.world:
        raise DataError(
            f"{counted(rows, 'row')} cannot be divided among {walk.world} workers.",
            remedy=f"set parallelism.num_workers={max(1, rows)}, or give more rows",
        )
    longest = _longest_share(walk) if is_exact else None
    if longest is None:
        longest = math.ceil(rows * training.num_epochs / walk.world)
    return max(1, math.ceil(longest / _rows_per_step(config))), rows if is_exact else None


def _rows_of(walk: Walk, part: int) -> int | None:
    rows = walk.plan.parts[part].num_rows
    return walk.counts.get(part) if rows is None else rows


def _longest_share(walk: Walk) -> int | None:
    """Return the rows of the worker with the most, in all epochs; None if that is not known."""
    epochs, parts = walk.num_epochs, walk.plan.parts
    if epochs is None or epochs * len(parts) > _MOST_ORDERED:
        return None
    sums = [0] * walk.world
    for epoch in range(epochs):
        shares = order(parts, seed=walk.seed, epoch=epoch, world=walk.world, shuffle=walk.shuffle)
        for rank, pieces in enumerate(shares):
            for piece in pieces:
                end = _rows_of(walk, piece.part) if piece.end is None else piece.end
                if end is None:
                    return None
                sums[rank] += end - piece.begin
    return max(sums)
