"""Sums over steps, from which the figures of a whole run are made."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class StepSums(BaseModel):
    """Sums over some steps, from which the figures of a whole run are made.

    Each number is added up beside the seconds of those steps that have it (`_s`): a step may lack
    any. Utilizations are multiplied by their step's seconds.
    """

    model_config = ConfigDict(extra="ignore", frozen=True)

    steps: int = 0
    time_s: float = 0.0
    tokens: float = 0.0
    tokens_s: float = 0.0
    mfu: float = 0.0
    mfu_s: float = 0.0
    mfu_palm: float = 0.0
    mfu_palm_s: float = 0.0
    hfu: float = 0.0
    hfu_s: float = 0.0
    recomputed: float = 0.0
    recomputed_s: float = 0.0
    parts: dict[str, float] = {}
    """Seconds by name of the step's field, as `optimizer_s`."""
    parts_of: dict[str, float] = {}
    """Seconds of the steps that have it, by the same name."""
