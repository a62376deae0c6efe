"""The figure of money, which training, script and score runs have in common."""

from __future__ import annotations

from llmops_kernel.kinds.kind import Figure
from llmops_kernel.store.journal.view import RunView

_COUNTED = (
    "nodes used x price of a node for an hour, all attempts, up to the newest event of the run;"
    " a node that two runs share counts whole for each"
)
_UNKNOWN = "not known: the cluster's template had no `price` for each node when they were started"


def cost_figure(view: RunView) -> Figure:
    """What the run has cost so far; runs in two currencies are two figures, as neither is more."""
    cost = view.cost
    known = cost.money is not None
    return Figure(
        key=f"cost_{cost.currency.lower()}" if known else "cost",
        label="cost so far",
        unit="money",
        better="lower",
        hint=_COUNTED if known else _UNKNOWN,
        value=lambda view: view.cost.money,
        note=lambda view: view.cost.currency,
    )
