"""Whether a model keeps rows that stand in one sequence apart: found by asking the model itself.

Transformers tells rows of one sequence apart by positions that start again at 0, and only where a
model hands its positions on to the attention mask (5.23: Falcon, OPT, Bloom, MPT and gpt-oss do
not). Rows then attend to each other, without a warning and with a loss that looks right.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

_ROW = 8
"""Tokens of each of the two rows."""
_FIRST_ID = 10
"""Ids before it, and those at the end of large vocabularies, often have a meaning of their own."""
_MOST_IDS = 240
_ROUNDING = {True: (1e-3, 1e-3), False: (4e-3, 5e-2)}
"""By whether the model computes in float32: mean differences of logits, in their standard
deviations, that are rounding: between equal rows of one pass, which most kernels compute bit by bit
alike, and of two passes. Of rows that attend to each other at least 0.008 and 0.01 were seen, with
random weights."""


def mixing_problem(model: Any, *, device: torch.device, is_float32: bool = True) -> str | None:
    """Return how the second of two joined rows depends on the first; empty: it does not.

    None: the model returns no finite logits, and so nothing is known. Call it on all ranks alike:
    with sharded weights each pass is a collective. Two passes of a few tokens, without gradients.
    Raises what the model raises.
    """
    first, other, second = _rows(_vocabulary(model))
    joined = torch.tensor([[*first, *second], [*other, *second]], device=device)
    positions = torch.arange(_ROW, device=device).repeat(2, 2)
    with _evaluating(model):
        together = _logits(model, joined, positions)
        alone = _logits(model, joined[:1, _ROW:], positions[:1, :_ROW])
    if together is None or alone is None or not alone.isfinite().all():
        return None
    scale = float(alone.float().std()) or 1.0
    equal, other_pass = (scale * share for share in _ROUNDING[is_float32])
    behind = together[:, _ROW:]
    # Not "if more": a NaN must not pass.
    if not _distance(behind[0], behind[1]) <= equal:
        return "its logits of a row change with the row that stands before it in the sequence"
    if not _distance(behind[0], alone[0]) <= other_pass:
        return "its logits of a row behind another one are not those of the row alone"
    return ""


def _distance(one: torch.Tensor, other: torch.Tensor) -> float:
    return float((one.float() - other.float()).abs().mean())


def _rows(vocabulary: int) -> tuple[list[int], list[int], list[int]]:
    """Return the first row, another one to put in its place, and the second row."""
    first = _FIRST_ID if vocabulary > 2 * _FIRST_ID else 0
    count = min(vocabulary - first, _MOST_IDS)
    ids = [first + 37 * number % count for number in range(3 * _ROW)]
    return ids[:_ROW], ids[_ROW : 2 * _ROW], ids[2 * _ROW :]


def _vocabulary(model: Any) -> int:
    settings: Any = getattr(model, "config", None)
    if hasattr(settings, "get_text_config"):
        settings = settings.get_text_config()
    return int(getattr(settings, "vocab_size", None) or _MOST_IDS)


def _logits(model: Any, ids: torch.Tensor, positions: torch.Tensor) -> torch.Tensor | None:
    logits = getattr(model(input_ids=ids, position_ids=positions), "logits", None)
    return logits if isinstance(logits, torch.Tensor) and logits.ndim == 3 else None


@contextmanager
def _evaluating(model: Any) -> Iterator[None]:
    """Without dropout, which would make equal rows differ."""
    was_training = model.training
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        model.train(was_training)
