"""Counts what a batch makes the model compute, padding included."""

from __future__ import annotations

from typing import Any

import torch

from llmops_kernel.train.data.collate import KEPT


def computed_counts(batch: dict[str, Any]) -> torch.Tensor | None:
    """Return tokens, logits, and width^2 of the rows with and without a mask, as four integers.

    As Transformers decides it (5.23, `masking_utils`): a batch without padding and with one row
    a sequence has no mask. On the batch's device, without waiting for it.
    """
    ids = batch.get("input_ids")
    if ids is None:
        return None
    rows, width = ids.shape
    square, tokens = (
        torch.full((), number, dtype=torch.int64, device=ids.device)
        for number in (rows * width * width, rows * width)
    )
    masked = square * _has_mask(batch).to(square.dtype)
    kept = batch.get(KEPT)
    logits = tokens if kept is None else kept.sum()
    return torch.stack([tokens, logits, masked, square - masked])


def _has_mask(batch: dict[str, Any]) -> torch.Tensor:
    mask, positions = batch.get("attention_mask"), batch.get("position_ids")
    if mask is not None:
        return (mask == 0).any()
    if positions is not None:
        return (positions.diff(dim=-1) != 1).any()
    return torch.zeros((), dtype=torch.bool, device=batch["input_ids"].device)
