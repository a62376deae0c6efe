"""The number of rows of a streamed epoch, and of the steps they make."""

from __future__ import annotations

import math
from collections.abc import Sequence

from llmops_kernel.config.counted import counted
from llmops_kernel.config.models.train import TrainingConfig
from llmops_kernel.errors import DataError
from llmops_kernel.train.data.mixture.mix import Mix
from llmops_kernel.train.data.mixture.rows import exact
from llmops_kernel.train.data.stream.order import order
from llmops_kernel.train.data.stream.plan import estimated_rows
from llmops_kernel.train.data.stream.walk import Walk

_MOST_ORDERED = 200_000
"""Parts, in all epochs, up to which each worker's exact number of rows is worked out."""


def rows_per_step(config: TrainingConfig) -> int:
    """Return the sequences of one worker in a step."""
    return config.training.micro_batch_size * config.gradient_accumulation_steps


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
    epoch_rows = [_rows(walk) for walk in mix.walks]
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


def _rows(walk: Walk) -> tuple[int, bool]:
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
