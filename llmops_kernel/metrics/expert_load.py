"""The balance of the routers of a mixture of experts over the tokens of a step."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

LOAD = "expert_load_max"
"""Tokens of a layer's busiest expert over the mean of its experts; the mean over the layers."""
WORST = "expert_load_worst"
"""The load in the layer where it is highest."""
IDLE = "experts_idle"
"""Fraction of all experts that got no token, 0..1."""


def expert_load(layers: Sequence[Sequence[int]]) -> dict[str, float]:
    """Return the load of the busiest experts, and how many experts are idle.

    `layers`: for each layer how many tokens were sent to each of its experts. Their shares are the
    fractions f_i of Switch Transformers (arxiv.org/abs/2101.03961, equation 5), of k experts a
    token as in Mixtral. A layer's load is E max(f) / sum(f) for E experts: 1 where all get alike,
    E / k where the same k get all. Less 1 it is MaxVio of arxiv.org/abs/2408.15664.
    Empty where nothing was counted.
    """
    routed = [counts for counts in layers if sum(counts) > 0]
    if not routed:
        return {}
    loads = [max(counts) * len(counts) / sum(counts) for counts in routed]
    idle = sum(count == 0 for counts in routed for count in counts)
    return {
        LOAD: fmean(loads),
        WORST: max(loads),
        IDLE: idle / sum(len(counts) for counts in routed),
    }
