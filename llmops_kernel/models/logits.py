"""How far the logits of a written model are from those of the model that it was written from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

EXACT: Final = 1e-3
"""Difference that is allowed in float32, where sums in another order give 1e-6."""
COMPUTED: Final = 0.03
"""Of the same weights, computed in 16 bits, or of weights rounded to the 11 bits of float16."""
ROUNDED: Final = 0.1
"""Of weights rounded to 8 bits, as those of bfloat16 and Q8_0: 0.5 to 3 % in a model of some dozens
of layers. A lost or doubled adapter gives what it was trained for, which is more."""


def probe(rows: Sequence[Sequence[int]], *, vocabulary: int, most: int = 32) -> list[int]:
    """Return a few token ids to ask a model with: the ends of some rows, then other tokens.

    Of rows that were trained on, as an adapter of an embedding changes the tokens that it has seen.
    """
    seen = [token for row in rows[:4] for token in row[-most // 4 :]]
    count = max(4, most - len(seen))
    others = [(2 * number + 1) * vocabulary // (2 * count) for number in range(count)]
    return [token for token in (*seen, *others) if 0 <= token < vocabulary][:most]


def logits_of(model: Any, ids: Sequence[int], device: Any) -> Any:
    """Return the logits at each token, float32 on the CPU, as (tokens, vocabulary)."""
    import torch

    given = torch.tensor([list(ids)], device=device)
    was_training = model.training
    model.eval()
    try:
        with torch.no_grad():
            found = model(input_ids=given, attention_mask=torch.ones_like(given)).logits
    finally:
        model.train(was_training)
    return found[0].float().cpu()


def difference(before: Any, after: Any) -> float:
    """Return the size of the difference, as a share of the size of `before`; infinite for NaN.

    The mean of a row is left out: it changes no probability, and may be most of the size.
    """
    import torch

    if before.shape[-1] != after.shape[-1]:  # A vocabulary padded by a format.
        width = min(before.shape[-1], after.shape[-1])
        before, after = before[..., :width], after[..., :width]
    old, new = (one.double() - one.double().mean(-1, keepdim=True) for one in (before, after))
    found = float((old - new).norm() / old.norm().clamp(min=1e-12))
    return found if torch.isfinite(torch.tensor(found)) else float("inf")
