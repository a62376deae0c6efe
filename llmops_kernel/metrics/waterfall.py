"""Where the FLOPs go that a training could have made: from the peak down to its MFU.

Each bar is a share of peak x wall time of a window of steps. Time in which the device does not
compute is lost whole; of the time in passes, what is counted is taken off: FLOPs that were executed
and are not required (`hfu` less `mfu`), what the matrix products of this device cannot reach of
the datasheet's peak, and what a micro batch costs at any size. What is left was measured as a
whole only, and is called not explained.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

Name = Literal[
    "ceiling",
    "padding",
    "recomputation",
    "fixed",
    "communication",
    "optimizer",
    "offload",
    "data",
    "between",
    "evaluation",
    "save",
    "unexplained",
]
LABELS: Final[dict[Name, str]] = {
    "ceiling": "matrix products below the datasheet",
    "padding": "padding and masked tokens",
    "recomputation": "recomputation",
    "fixed": "fixed cost of a micro batch",
    "communication": "waiting for other workers",
    "optimizer": "optimizer",
    "offload": "offloaded optimizer",
    "data": "waiting for data",
    "between": "callbacks and logging",
    "evaluation": "evaluation",
    "save": "checkpoints",
    "unexplained": "not explained",
}
_SECONDS: Final[dict[Name, str]] = {
    "communication": "communication_s",
    "optimizer": "optimizer_s",
    "offload": "offload_s",
    "data": "data_wait_s",
    "between": "between_s",
}
MIN_STEPS: Final = 3


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What was measured over some steps, of rank 0 where it differs; None: not measured."""

    steps: int
    steps_s: float
    """Seconds of these steps together."""
    evaluation_s: float = 0.0
    """Between them."""
    save_s: float = 0.0
    mfu: float | None = None
    """Share of the peak in `steps_s`; so the next two."""
    hfu: float | None = None
    recomputed: float | None = None
    """Part of `hfu`."""
    parts: dict[str, float | None]
    """Share of `steps_s` by the name of the step's field, such as `optimizer_s`."""
    fixed_share: float | None = None
    """Of the passes, what a micro batch takes at any size."""
    ceiling: float | None = None
    """What large matrix products reach on this device, as a share of the peak: 1 where the peak is
    such a measurement."""
    tokens_per_second: float | None = None
    """In `steps_s`, of all workers."""

    @property
    def overall_tokens_per_second(self) -> float | None:
        """Return the rate over the whole window, with evaluations and saves."""
        if self.tokens_per_second is None:
            return None
        return self.tokens_per_second * self.steps_s / self.window_s

    @property
    def window_s(self) -> float:
        return self.steps_s + self.evaluation_s + self.save_s

    def part_s(self, field: str) -> float:
        """Return the seconds of a part; 0 where it was not measured."""
        return (self.parts.get(field) or 0.0) * self.steps_s


@dataclass(frozen=True)
class Bar:
    """A loss."""

    name: Name
    share: float | None
    """Of peak x wall time, 0..1; None: not measured, so that it is in the last bar."""

    @property
    def label(self) -> str:
        return LABELS[self.name]


@dataclass(frozen=True)
class Waterfall:
    """The losses from the peak (1) down to `mfu`."""

    measured: Measured
    mfu: float | None
    """Over the whole window, with evaluations and saves. None where it is not known: then the
    products of the passes are in the bar of what is not explained too."""
    bars: tuple[Bar, ...]

    @property
    def total(self) -> float:
        """Return the bars and `mfu` together: 1, but for errors of the measurements."""
        return (self.mfu or 0.0) + sum(bar.share or 0.0 for bar in self.bars)

    @property
    def unmeasured(self) -> tuple[str, ...]:
        """Return what is in the last bar because it was not measured."""
        return tuple(bar.label for bar in self.bars if bar.share is None)

    def share(self, name: Name) -> float:
        """Return a bar; 0 where it was not measured."""
        return next((bar.share or 0.0 for bar in self.bars if bar.name == name), 0.0)


def waterfall(measured: Measured) -> Waterfall | None:
    """Return the waterfall of what was measured; None of too few steps."""
    if measured.steps < MIN_STEPS or measured.window_s <= 0:
        return None
    of_window = measured.steps_s / measured.window_s
    mfu = None if measured.mfu is None else measured.mfu * of_window
    lost = dict(_losses(measured, of_window))
    rest = 1.0 - (mfu or 0.0) - sum(share or 0.0 for share in lost.values())
    # Parts are timed one after another and passes hold what is counted in them, so a negative rest
    # is an error of the measurement; it stays visible in `total`.
    lost["unexplained"] = max(0.0, rest)
    return Waterfall(measured, mfu, tuple(Bar(name, lost[name]) for name in LABELS))


def _losses(measured: Measured, of_window: float) -> Iterator[tuple[Name, float | None]]:
    """Yield each loss but the last; none is negative, and those of the passes fit into them."""
    for name, field in _SECONDS.items():
        share = measured.parts.get(field)
        yield name, None if share is None else max(0.0, share) * of_window
    yield "evaluation", measured.evaluation_s / measured.window_s
    yield "save", measured.save_s / measured.window_s
    passes = measured.parts.get("passes_s")
    mfu, hfu, again = measured.mfu, measured.hfu, measured.recomputed
    if passes is None:
        yield from dict.fromkeys(_IN_PASSES, None).items()
        return
    room = max(0.0, passes - (mfu or 0.0))
    counted: dict[Name, float | None] = {
        "recomputation": again if mfu and hfu else None,
        "padding": hfu - mfu - again if mfu and hfu and again is not None else None,
        "ceiling": hfu / min(1.0, measured.ceiling) - hfu if hfu and measured.ceiling else None,
        "fixed": None if measured.fixed_share is None else measured.fixed_share * passes,
    }
    for name in _IN_PASSES:
        share = counted[name]
        if share is not None:
            share = min(max(0.0, share), room)
            room -= share
        yield name, None if share is None else share * of_window


_IN_PASSES: Final[tuple[Name, ...]] = ("recomputation", "padding", "ceiling", "fixed")
"""In this order they are taken off the time in passes."""
