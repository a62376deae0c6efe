"""Rows of like length in one micro batch, among the rows of one optimizer step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence, Sized
from dataclasses import dataclass
from itertools import islice
from typing import Any, Protocol, TypeVar

from llmops_kernel.config.models.train import TrainingConfig
from llmops_kernel.train.data.examples import Example, Packed

Row = Example | Packed


class _Sized(Protocol):
    @property
    def input_ids(self) -> Sized: ...


R = TypeVar("R", bound=_Sized)


@dataclass(frozen=True)
class Grouping:
    """Sorts the rows that a worker reads for one step, and only those.

    So each step trains on the rows that it would see anyway, on the same worker, and its loss is
    the same sum in another order. A resumed run continues with the same rows, since nothing is
    changed about which rows are read when.
    """

    collate: Callable[[Sequence[Row]], dict[str, Any]]

    def batches(self, batches: Iterator[list[Row]], count: int) -> Iterator[dict[str, Any]]:
        """Read up to `count` micro batches of rows; yield as many of the same sizes."""
        for rows in by_length(list(islice(batches, count))):
            yield self.collate(rows)


def groups_by_length(config: TrainingConfig) -> bool:
    """Return whether a run groups: several micro batches in a step, and `performance` allows it."""
    wanted, several = config.performance.group_by_length, config.gradient_accumulation_steps > 1
    if wanted == "auto":
        return config.performance.automatic and several
    return wanted and several


def by_length(batches: Sequence[Sequence[R]]) -> list[list[R]]:
    """Return the same rows in batches of the same sizes, the longest rows first.

    The longest first: a batch that does not fit into memory fails before the others were computed.
    Equal lengths keep their order.
    """
    rows = sorted((row for rows in batches for row in rows), key=lambda row: -len(row.input_ids))
    rest = iter(rows)
    return [list(islice(rest, len(batch))) for batch in batches]
