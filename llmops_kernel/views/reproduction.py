"""A run beside its reproduction: the first number that differs, and what can be its reason. Pure.

Numbers are equal if their bits are: of a NaN, that it is one. Times, speeds and memory are left
out.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from llmops_kernel.config.counted import counted
from llmops_kernel.errors import inert
from llmops_kernel.metrics.events import EvalEvent, StepEvent
from llmops_kernel.store.diff import ABSENT, value_text

Value = float | int | str | None
Place = tuple[int, int]
"""(step, 0 of the step itself or 1 of the evaluation after it); of a table (row, 0)."""
Curve = Mapping[Place, Mapping[str, Value]]
"""What a run has computed, without times, by place and name."""

STEP_FIGURES = ("tokens", "epoch", "learning_rate", "loss", "grad_norm", "flops")
"""Fields of a step that its inputs decide, those first that no arithmetic can change."""
_EXACT = frozenset({"tokens", "epoch", "learning_rate"})
_TIMES = re.compile(
    r"(^|_)(s|ms|seconds?|time|runtime|duration|bytes|memory|mfu|hfu)$|per_s(econd)?$"
)


def is_compared(name: str) -> bool:
    """Return whether a number that a run named itself can be equal: no time, speed or memory."""
    return _TIMES.search(name.lower()) is None


def curve_of(steps: Sequence[StepEvent], evaluations: Sequence[EvalEvent]) -> Curve:
    """Return the numbers of a training or a script, and the answers that it has shown."""
    curve: dict[Place, dict[str, Value]] = {}
    for event in steps:
        own = {name: value for name, value in (event.values or {}).items() if is_compared(name)}
        curve[event.step, 0] = {name: getattr(event, name) for name in STEP_FIGURES} | own
    for report in evaluations:
        values: dict[str, Value] = {"rows": report.num_rows}
        values |= {name: value for name, value in report.metrics.items() if is_compared(name)}
        for number, sample in enumerate(report.samples):
            if "prediction" in sample:
                values[f"answer to row {sample.get('row', number)}"] = sample["prediction"]
        curve[report.step, 1] = curve.get((report.step, 1), {}) | values
    return curve


def is_same(one: Value, other: Value) -> bool:
    """Return whether two values have the same bits: 0.0 is not -0.0, a NaN is like any other."""
    if isinstance(one, str | None) or isinstance(other, str | None):
        return one == other
    if math.isnan(one) or math.isnan(other):
        return math.isnan(one) and math.isnan(other)
    return struct.pack("<d", one) == struct.pack("<d", other)


@dataclass(frozen=True, kw_only=True)
class DifferentValue:
    """A figure that differs at a place."""

    name: str
    before: Value
    after: Value

    @property
    def relative(self) -> float | None:
        """Return |after - before| / |before|; None where one is no finite number, or 0."""
        pair = (self.before, self.after)
        if any(isinstance(value, str | None) or not math.isfinite(value) for value in pair):
            return None
        before, after = float(self.before or 0.0), float(self.after or 0.0)
        return abs(after - before) / abs(before) if before else None

    @property
    def text(self) -> str:
        """Return `loss 5.43 -> 5.44 (0.2 %)`, with all digits that tell the two apart."""
        ratio = "" if self.relative is None else f" (relative difference {self.relative:.2g})"
        return f"{self.name} {_shown(self.before)} -> {_shown(self.after)}{ratio}"


@dataclass(frozen=True, kw_only=True)
class Difference:
    """The first place at which two runs differ."""

    place: Place
    values: tuple[DifferentValue, ...] = ()
    """Empty: only one of the two has this step or row."""
    only_in: Literal["", "before", "after"] = ""

    @property
    def is_exact(self) -> bool:
        """Return whether rounding cannot explain it: counts and schedules, or a missing step."""
        return bool(self.only_in) or any(value.name in _EXACT for value in self.values)


@dataclass(frozen=True, kw_only=True)
class Compared:
    """How far two curves are equal."""

    num_rows: int
    """Steps, or rows of a table, that are equal, up to the first difference."""
    num_evaluations: int
    difference: Difference | None


def compare(before: Curve, after: Curve, *, ended: tuple[bool, bool] = (True, True)) -> Compared:
    """Compare place by place, in order.

    `ended` says of each of the two whether it ran to its end: what such a run lacks was not
    computed, and is a difference. Nothing is compared behind the last place of one that was
    stopped.
    """
    num_rows = num_evaluations = 0
    difference: Difference | None = None
    last = [max(curve, default=(-1, 0)) for curve in (before, after)]
    for place in sorted(before.keys() | after.keys()):
        if any(not whole and place > end for whole, end in zip(ended, last, strict=True)):
            break
        difference = _at(place, before, after)
        if difference is not None:
            break
        num_rows += place[1] == 0
        num_evaluations += place[1] == 1
    return Compared(num_rows=num_rows, num_evaluations=num_evaluations, difference=difference)


def _at(place: Place, before: Curve, after: Curve) -> Difference | None:
    one, other = before.get(place), after.get(place)
    if one is None or other is None:
        return Difference(place=place, only_in="after" if one is None else "before")
    values = tuple(
        DifferentValue(name=name, before=one.get(name), after=other.get(name))
        for name in dict.fromkeys((*one, *other))
        if not is_same(one.get(name), other.get(name))
        and not (name == "flops" and None in (one.get(name), other.get(name)))  # Not counted.
    )
    return Difference(place=place, values=values) if values else None


# --- What can be the reason ---


GROUPS = {
    "config": "config",
    "code": "changed code",
    "library": "another llmops_kernel",
    "data": "changed data",
    "model": "another model",
    "files": "changed files of the workspace",
    "workers": "workers and batches",
    "versions": "other versions",
    "device": "another device",
    "attempts": "a resume",
    "settings": "not deterministic",
}
"""Groups of facts, most telling first, and how a reason of each is called."""
_ARITHMETIC = ("versions", "device", "settings")
"""Groups that change roundings: they cannot explain other counts of tokens or a missing step."""
_OFTEN_UNKNOWN = ("data", "model", "versions", "device")
"""Groups whose facts earlier versions have not recorded, and a script's files never are."""
_ALWAYS = frozenset({"settings"})
"""Groups of which a fact is a reason also where both runs have it."""

Facts = Mapping[str, Mapping[str, str | None]]
"""Group -> name -> what a run's numbers depend on; None: not known of this run."""


@dataclass(frozen=True, kw_only=True)
class Reason:
    """A fact that differs between two runs, or that lets the same run give other numbers."""

    group: str
    name: str
    before: str | None
    after: str | None

    @property
    def text(self) -> str:
        if self.group in _ALWAYS:
            return f"{GROUPS[self.group]}: {self.name} {self.before or self.after}"
        return f"{GROUPS[self.group]}: {self.name} {_shown(self.before)} -> {_shown(self.after)}"


def changes(before: Facts, after: Facts) -> tuple[Reason, ...]:
    """Return the facts that differ, in the order of `GROUPS`; unknown ones are left out.

    A file, a field or a package that only one of the two has differs where the other one's group
    is known at all.
    """
    return tuple(reason for group in GROUPS for reason in _changed(group, before, after))


def _changed(group: str, before: Facts, after: Facts) -> Iterator[Reason]:
    one, other = before.get(group, {}), after.get(group, {})
    if group in _ALWAYS or not one or not other:
        return
    for name in sorted(one.keys() | other.keys()):
        first, second = one.get(name, ABSENT), other.get(name, ABSENT)
        if first is not None and second is not None and first != second:
            yield Reason(group=group, name=name, before=first, after=second)


def unknown(before: Facts, after: Facts) -> tuple[str, ...]:
    """Return what was not recorded of one of the two: `versions`, or `data rows.jsonl`."""
    names = []
    for group in _OFTEN_UNKNOWN:
        one, other = before.get(group, {}), after.get(group, {})
        every = sorted(one.keys() | other.keys())
        lacking = [name for name in every if None in (one.get(name, ""), other.get(name, ""))]
        names += [f"{group} {name}" for name in lacking]
        if not one or not other:
            names.append(group)
    return tuple(names)


def reasons(
    difference: Difference,
    before: Facts,
    after: Facts,
    *,
    resumed_at: Sequence[int] = (),
) -> tuple[Reason, ...]:
    """Return what can explain a difference, the most telling first; empty: nothing does.

    `resumed_at`: last steps before a resume of one of the two, which explains no earlier step.
    """
    listed = list(changes(before, after))
    for name in sorted({*before.get("settings", {}), *after.get("settings", {})}):
        pair = (before.get("settings", {}).get(name), after.get("settings", {}).get(name))
        listed.append(Reason(group="settings", name=name, before=pair[0], after=pair[1]))
    if not any(step < difference.place[0] for step in resumed_at):
        listed = [reason for reason in listed if reason.group != "attempts"]
    if difference.is_exact:
        listed = [reason for reason in listed if reason.group not in _ARITHMETIC]
    elif _is_rounding(difference):
        order = ("config", "workers", "versions", "device")
        listed.sort(key=lambda reason: (reason.group != "config", reason.group not in order))
    return tuple(listed)


def _is_rounding(difference: Difference) -> bool:
    """Return whether all numbers are as near as other roundings of the same sums would be."""
    ratios = [value.relative for value in difference.values]
    return bool(ratios) and all(ratio is not None and ratio < _ROUNDING for ratio in ratios)


_ROUNDING = 1e-4
"""Relative difference below which workers, versions and devices are named before files."""


# --- The answer ---


@dataclass(frozen=True, kw_only=True, repr=False)
class Reproduction:
    """Shows itself as text where it is printed."""

    run: str
    """Id of the run."""
    by: str
    """Id of the run that is compared with it."""
    unit: Literal["step", "row"] = "step"
    compared: Compared
    changes: tuple[Reason, ...] = ()
    """All facts that differ."""
    unknown: tuple[str, ...] = ()
    """Facts that nobody has recorded of one of the two."""
    reasons: tuple[Reason, ...] = ()
    """Those that can explain the difference, the most telling first."""
    notes: tuple[str, ...] = field(default=())
    """What limits the comparison."""

    @property
    def is_equal(self) -> bool:
        return self.compared.difference is None

    @property
    def answer(self) -> str:
        """Return the first line: how many steps are equal, or where the first difference is."""
        compared, difference = self.compared, self.compared.difference
        equal = counted(compared.num_rows, self.unit)
        if compared.num_evaluations:
            equal += f" and {counted(compared.num_evaluations, 'evaluation')}"
        if difference is None:
            return f"equal: {equal}, bit for bit"
        number, part = difference.place
        where = f"{self.unit} {number:,}" if not part else f"the evaluation after step {number:,}"
        if difference.only_in:
            has = self.run if difference.only_in == "before" else self.by
            return f"differs: only {has} has {where} ({equal} before it are equal)"
        return f"differs at {where} ({equal} before it are equal)"

    @property
    def text(self) -> str:
        lines = [self.answer]
        difference = self.compared.difference
        if difference is not None:
            lines += [f"  {value.text}" for value in difference.values[:_SHOWN]]
            lines += _more(len(difference.values), "other figure")
            lines.append("Reason, as far as the records prove it:" if self.reasons else _UNKNOWN)
            lines += [f"  {n}. {each.text}" for n, each in enumerate(self.reasons[:_SHOWN], 1)]
            lines += _more(len(self.reasons), "other fact")
        elif self.changes:
            lines.append("Although these differ:")
            lines += [f"  {each.text}" for each in self.changes[:_SHOWN]]
            lines += _more(len(self.changes), "other fact")
        if self.unknown:
            lines.append(f"Not known of one of the two: {', '.join(self.unknown)}")
        return "\n".join([*lines, *self.notes])

    def to_json(self) -> dict[str, Any]:
        """Return the answer as plain data; NaN and infinity as texts."""
        difference = self.compared.difference
        reason = self.reasons[0].text if self.reasons else "unknown"
        return {
            "answer": "equal" if difference is None else "differs",
            "run": self.run,
            "by": self.by,
            "unit": self.unit,
            "num_equal": self.compared.num_rows,
            "evaluations_equal": self.compared.num_evaluations,
            self.unit: difference.place[0] if difference else None,
            "in_evaluation": bool(difference and difference.place[1]),
            "only_in": difference.only_in if difference else "",
            "values": [_value_json(value) for value in difference.values] if difference else [],
            "reason": reason if difference else None,
            "reasons": [asdict(each) | {"text": each.text} for each in self.reasons],
            "changes": [asdict(each) | {"text": each.text} for each in self.changes],
            "unknown": list(self.unknown),
            "notes": list(self.notes),
        }

    def __repr__(self) -> str:
        return inert(f"{self.run} and {self.by}: {self.text}")


_SHOWN = 8
_UNKNOWN = "Reason: unknown. Nothing that was recorded of the two differs."


def _more(count: int, what: str) -> list[str]:
    return [f"  and {counted(count - _SHOWN, what)}"] if count > _SHOWN else []


def _value_json(value: DifferentValue) -> dict[str, Any]:
    pair = {"before": value.before, "after": value.after}
    finite = {k: v if _is_json(v) else str(v) for k, v in pair.items()}
    return {"name": value.name, **finite, "relative": value.relative}


def _is_json(value: Value) -> bool:
    return not isinstance(value, float) or math.isfinite(value)


def _shown(value: Value) -> str:
    """Return a value with all its digits; what is not known as a dash."""
    if value is None:
        return ABSENT
    text = value_text(value) if isinstance(value, str) else repr(value)
    return text if len(text) <= _WIDTH else f"{text[: _WIDTH - 1]}…"


_WIDTH = 120
