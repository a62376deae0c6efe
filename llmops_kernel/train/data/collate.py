"""Batches: padding, labels, and the counts that MFU needs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch

from llmops_kernel.train.data.examples import IGNORED, Blank, Example, Packed, lay_out

COUNTS = "llmops_counts"
"""Batch key of an int64 tensor (rows, 3): tokens, the sum of squared row lengths, and tokens whose
logits are computed; padding apart. The trainer takes it out before the model sees the batch."""
KEPT = "logits_to_keep"
"""Batch key of a boolean mask (rows, width): positions whose logits are computed."""


class Collator:
    """Pads to the longest sequence of the batch, rounded up to a multiple of 8."""

    def __init__(
        self,
        *,
        pad_token_id: int,
        pad_to_multiple_of: int = 8,
        label_logits: bool = False,
        padding_free: bool = False,
        too_large: Callable[[list[int]], Exception | None] = lambda _: None,
        vocabulary: int = sys.maxsize,
    ) -> None:
        """Set it up. `too_large` returns the error for tokens of `vocabulary` and above."""
        self._pad = pad_token_id
        self._multiple = pad_to_multiple_of
        self._label_logits = label_logits
        self._padding_free = padding_free
        self._too_large = too_large
        self._vocabulary = vocabulary

    def __call__(self, rows: Sequence[Example | Packed]) -> dict[str, Any]:
        counts = [_counts(row, self._label_logits) for row in rows]
        self._check(rows)
        if self._padding_free:
            rows = [join(rows)]
        batch = self._padded_batch(rows)
        batch[COUNTS] = torch.tensor(counts, dtype=torch.int64)
        if self._label_logits:
            batch["labels"], batch[KEPT] = at_labels(batch["labels"])
        return batch

    def _check(self, rows: Sequence[Example | Packed]) -> None:
        """Raise before the model looks up an embedding that it does not have."""
        largest = max(max(row.input_ids, default=0) for row in rows)
        if largest >= self._vocabulary:
            too_large = {
                token for row in rows for token in row.input_ids if token >= self._vocabulary
            }
            if error := self._too_large(sorted(too_large)):
                raise error

    def _padded_batch(self, rows: Sequence[Example | Packed]) -> dict[str, Any]:
        longest = max(len(row.input_ids) for row in rows)
        width = padded_width(longest, self._multiple)
        batch: dict[str, Any] = {
            "input_ids": self._padded([row.input_ids for row in rows], width, self._pad),
            "labels": self._padded([row.labels for row in rows], width, IGNORED),
        }
        if isinstance(rows[0], Packed):
            # No attention mask: Transformers derives the block-diagonal one from positions that
            # start again at 0; the padding at the end is one more block of its own.
            batch["position_ids"] = torch.tensor(
                [[*r.position_ids, *range(width - len(r.position_ids))] for r in rows]  # type: ignore[union-attr]
            )
        else:
            masks = [[1] * len(row.input_ids) for row in rows]
            batch["attention_mask"] = self._padded(masks, width, 0)
        return batch

    @staticmethod
    def _padded(rows: list[list[int]], width: int, value: int) -> torch.Tensor:
        return torch.tensor([[*row, *([value] * (width - len(row)))] for row in rows])


def at_labels(labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return labels and a mask for a model that computes logits where the mask is true.

    `labels`: (rows, width), at their own token's position. The loss of Transformers compares each
    logit with the label after it. So the result has, flat, a first label that nothing predicts,
    then each label whose token is predicted from a kept position, in order. The very last
    position, which predicts nothing, is always kept: the loss gives it no label.
    """
    targets = torch.nn.functional.pad(labels[:, 1:], (0, 1), value=IGNORED)
    is_target = targets != IGNORED
    target_labels = targets[is_target]
    is_target[-1, -1] = True
    return torch.nn.functional.pad(target_labels, (1, 0), value=IGNORED), is_target


def join(rows: Sequence[Example | Packed]) -> Packed:
    """Return the rows end to end, as one sequence in which each starts at position 0."""
    joined = Packed([], [], [], [])
    for row in rows:
        part = row if isinstance(row, Packed) else lay_out([row])
        joined.input_ids.extend(part.input_ids)
        joined.labels.extend(part.labels)
        joined.position_ids.extend(part.position_ids)
        joined.lengths.extend(part.lengths)
    return joined


def _counts(row: Example | Packed, label_logits: bool) -> tuple[int, int, int]:
    if isinstance(row, Blank):
        return 0, 0, 0
    lengths = row.lengths if isinstance(row, Packed) else [len(row.input_ids)]
    tokens = sum(lengths)
    logits = len(row.labels) - 1 - row.labels[1:].count(IGNORED) if label_logits else tokens
    return tokens, sum(length * length for length in lengths), logits


# --- Width of a batch ---


GPU_MULTIPLE = 8
"""Tensor cores want widths that are a multiple of it."""


def width_multiple(*, use_gpu: bool) -> int:
    return GPU_MULTIPLE if use_gpu else 1


def padded_width(longest: int, multiple: int) -> int:
    """Return the width of a batch whose longest sequence has `longest` tokens."""
    return -(-longest // multiple) * multiple
