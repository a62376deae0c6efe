"""Batches: padding, labels, and the two counts that MFU needs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from llmops_kernel.train.data.examples import IGNORED, Example, Packed

COUNTS = "llmops_counts"
"""Batch key of an int64 tensor (rows, 2): tokens, and the sum of squared row lengths, padding
apart. The trainer takes it out before the model sees the batch."""


class Collator:
    """Pads to the longest sequence of the batch, rounded up to a multiple of 8."""

    def __init__(self, *, pad_token_id: int, pad_to_multiple_of: int = 8) -> None:
        self._pad = pad_token_id
        self._multiple = pad_to_multiple_of

    def __call__(self, rows: Sequence[Example | Packed]) -> dict[str, Any]:
        longest = max(len(row.input_ids) for row in rows)
        width = -(-longest // self._multiple) * self._multiple
        batch: dict[str, Any] = {
            "input_ids": self._padded([row.input_ids for row in rows], width, self._pad),
            "labels": self._padded([row.labels for row in rows], width, IGNORED),
            COUNTS: torch.tensor([_counts(row) for row in rows], dtype=torch.int64),
        }
        if isinstance(rows[0], Packed):
            # No attention mask: Transformers derives the block-diagonal one from positions that
            # start again at 0; the padding at the end is one more block of its own.
            batch["position_ids"] = torch.tensor(
                [[*r.position_ids, *range(width - len(r.position_ids))] for r in rows]  # type: ignore[union-attr]
            )
        else:
            ones = [[1] * len(row.input_ids) for row in rows]
            batch["attention_mask"] = self._padded(ones, width, 0)
        return batch

    @staticmethod
    def _padded(rows: list[list[int]], width: int, value: int) -> torch.Tensor:
        return torch.tensor([[*row, *([value] * (width - len(row)))] for row in rows])


def _counts(row: Example | Packed) -> tuple[int, int]:
    lengths = row.lengths if isinstance(row, Packed) else [len(row.input_ids)]
    return sum(lengths), sum(length * length for length in lengths)
