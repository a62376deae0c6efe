"""Where the FLOPs of a training go, as rows of bars for terminals, panels and pictures. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from llmops_kernel.metrics.waterfall import Waterfall, waterfall
from llmops_kernel.planner.verdict import Verdict, overrides_of
from llmops_kernel.store.journal.training_view import TrainingView
from llmops_kernel.store.journal.view import RunView
from llmops_kernel.views import format as fmt
from llmops_kernel.views.panel import PanelBar, PanelLosses

_LEAST: Final = 0.0005
"""A smaller bar is left out."""
_BAR: Final = 30
_LABEL: Final = 35
TITLE: Final = "Where the FLOPs go"


def waterfall_of(view: RunView) -> Waterfall | None:
    """Return where a training's FLOPs go; None before its fourth step, and of another kind."""
    measured = view.measured if isinstance(view, TrainingView) else None
    return None if measured is None else waterfall(measured)


@dataclass(frozen=True)
class Step:
    """A row: the peak, a loss, or what is left."""

    label: str
    share: float | None
    left: float
    """Where the bar begins, 0..1; each loss ends where the one before began."""
    width: float
    is_loss: bool = True

    @property
    def text(self) -> str:
        return fmt.percent(self.share)


def steps_of(waterfall: Waterfall) -> Iterator[Step]:
    """Yield the peak, each loss that was measured, and the MFU that is left."""
    yield Step("peak", 1.0, 0.0, 1.0, is_loss=False)
    level = 1.0
    for bar in waterfall.bars:
        if bar.share is not None and bar.share >= _LEAST:
            level = max(0.0, level - bar.share)
            yield Step(bar.label, bar.share, level, min(1.0, bar.share))
    mfu = waterfall.mfu
    yield Step("mfu", mfu, 0.0, mfu or 0.0, is_loss=False)


def note_of(waterfall: Waterfall) -> str:
    """Return which steps were measured, and what could not be."""
    measured = waterfall.measured
    parts = [f"of {measured.steps:,} steps in {fmt.seconds(measured.window_s)}, by rank 0"]
    if waterfall.mfu is None:
        parts.append("peak or FLOPs are not known: passes are not explained")
    elif waterfall.unmeasured:
        parts.append(f"not measured, so not explained: {', '.join(waterfall.unmeasured)}")
    return "; ".join(parts)


def lines(waterfall: Waterfall) -> list[str]:
    """Return it as lines of at most 76 characters."""
    rows = []
    for step in steps_of(waterfall):
        begin, end = round(step.left * _BAR), round((step.left + step.width) * _BAR)
        full = "█" if not step.is_loss else "▒"
        bar = " " * begin + full * max(end - begin, 1 if step.share else 0)
        rows.append(f"{step.label:{_LABEL}} {step.text:>8} {bar}".rstrip())
    return rows


def panel_losses(waterfall: Waterfall | None, verdict: Verdict | None) -> PanelLosses:
    """Return the rows for the panel; none of a run whose steps were not measured."""
    if waterfall is None:
        return PanelLosses(rows=[], note="", verdict="", change="", overrides=[])
    rows = [
        PanelBar(
            name=step.label,
            detail="",
            left=step.left,
            width=step.width,
            text=step.text,
            running=False,
            interrupted=step.is_loss,
        )
        for step in steps_of(waterfall)
    ]
    change = verdict.change if verdict else {}
    return PanelLosses(
        rows=rows,
        note=note_of(waterfall),
        verdict=verdict.sentence if verdict else "",
        change=f"run.resubmit(**{change})" if change else "",
        overrides=overrides_of(change),
    )
