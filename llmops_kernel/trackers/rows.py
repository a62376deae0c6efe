"""What trackers get of a run's journal: numbers by step under stable names, texts and outputs.

* `train/<field>`, each step: `loss`, `learning_rate`, `grad_norm`, `epoch`; `tokens` and
  `tokens_per_second` of all workers, padding not counted; `flops`; `mfu`, `mfu_palm`, `hfu` and
  `recomputed`, 0..1; `step_time_s` and its parts `*_s`; `peak_memory_bytes`, `host_memory_bytes`.
* `train/<name>`, each step: what was logged with `track.log`, and the objective's own numbers.
* `eval/<metric>`, each evaluation: `loss` and the other metrics without `eval_`; `rows`,
  `duration_s`, `answers_s`.
* `<kind>/<name>` of a run without steps, such as `score`: its progress, as `score/rows` and
  `score/rows_per_second`, and metrics, as `score/exact_match` of the whole table at its end.

The x axis is the run's step; of a scoring it is the number of scored rows. Units are in the names.
A field that was not measured is left out; NaN is sent as NaN. A step that a restart repeats from
its checkpoint is not sent again: the tracker keeps the first, the journal has both.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from llmops_kernel.metrics.events import (
    AnyEvent,
    EndEvent,
    EvalEvent,
    FailureEvent,
    OutputEvent,
    ProgressEvent,
    RestartEvent,
    StartEvent,
    StepEvent,
    WarningEvent,
)
from llmops_kernel.store.journal.sample_texts import SampleTexts

_NO_NUMBERS: Final = {"stream", "seq", "time_s", "attempt", "kind", "step", "values", "stands_for"}
_STEP_FIELDS: Final = [name for name in StepEvent.model_fields if name not in _NO_NUMBERS]
_START_FIELDS: Final = (
    *("total_steps", "num_workers", "global_batch_size", "micro_batch_size", "device", "dtype"),
    *("peak_flops", "peak_source", "num_params", "num_trainable", "num_rows", "num_eval_rows"),
    *("num_tokens", "num_skipped", "hosts", "versions", "engine", "performance", "verified"),
)
_MOST_TEXT: Final = 4000


@dataclass(frozen=True)
class Table:
    """Samples of an evaluation."""

    columns: list[str]
    rows: list[list[str]]


@dataclass(frozen=True)
class Row:
    """What one event says to a tracker."""

    time_s: float
    step: int | None = None
    numbers: dict[str, float] = field(default_factory=dict)
    facts: dict[str, str] = field(default_factory=dict)
    """Texts by name; a later one replaces an earlier one of the same name."""
    samples: Table | None = None
    output: OutputEvent | None = None
    state: str = ""
    """How the newest attempt ended: SUCCEEDED, FAILED or STOPPED."""

    @property
    def has_place(self) -> bool:
        """Whether it is a row of the tracker's history: numbers or samples at a step."""
        return bool(self.numbers or self.samples)


class Rows:
    """Turns events into rows. The same events in the same order give the same rows."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._makes_steps: bool | None = None
        """False for a run that reports its progress instead; None before either."""
        self._texts = SampleTexts()
        self.last_step = 0
        """The largest step that was turned into a row."""
        self._evaluated: set[tuple[int, str]] = set()
        self._num_failures = self._num_restarts = 0

    def of(self, event: AnyEvent) -> Row | None:
        """Return what an event says; None for nothing."""
        match event:
            case StepEvent():
                return self._step(event)
            case EvalEvent():
                return self._evaluation(event)
            case ProgressEvent():
                return self._progress(event)
            case StartEvent():
                self._makes_steps = True
                facts = {name: _text(getattr(event, name)) for name in _START_FIELDS}
                return Row(event.time_s, facts={name: text for name, text in facts.items() if text})
            case OutputEvent():
                return Row(event.time_s, output=event)
            case RestartEvent():
                self._num_restarts += 1
                text = f"from step {event.from_step}: {event.cause}"
                return Row(event.time_s, facts={f"restart_{self._num_restarts}": text})
            case FailureEvent():
                self._num_failures += 1
                text = f"{event.message}\n{event.traceback}".strip()[:_MOST_TEXT]
                return Row(event.time_s, facts={f"failure_{self._num_failures}": text})
            case WarningEvent():
                return Row(event.time_s, facts={"warning": event.message[:_MOST_TEXT]})
            case EndEvent():
                facts = {"state": event.state, "message": event.message[:_MOST_TEXT]}
                facts = {name: text for name, text in facts.items() if text}
                return Row(event.time_s, facts=facts, state=event.state)
            case _:
                return None

    def _step(self, event: StepEvent) -> Row | None:
        if event.step <= self.last_step:
            return None
        self.last_step, self._makes_steps = event.step, True
        values = {name: getattr(event, name) for name in _STEP_FIELDS}
        numbers = {name: float(value) for name, value in values.items() if value is not None}
        own = {name: value for name, value in (event.values or {}).items() if name not in numbers}
        return Row(event.time_s, event.step, _named("train", numbers | own))

    def _progress(self, event: ProgressEvent) -> Row | None:
        """Return a row; None for that of an evaluation, which says how far it is."""
        if self._makes_steps:
            return None
        self._makes_steps = False
        numbers = {event.unit: float(event.done), **event.values}
        return Row(event.time_s, event.done, _named(self._kind, numbers))

    def _evaluation(self, event: EvalEvent) -> Row | None:
        self._texts.note(event)
        numbers = {name.removeprefix("eval_"): value for name, value in event.metrics.items()}
        facts = {"duration_s": event.duration_s, "answers_s": event.answers_s}
        numbers |= {name: value for name, value in facts.items() if value is not None}
        has_steps = self._makes_steps is not False
        if numbers and event.num_rows and has_steps:
            numbers["rows"] = float(event.num_rows)
        names = {name for name in numbers if (event.step, name) not in self._evaluated}
        self._evaluated |= {(event.step, name) for name in names}
        numbers = {name: value for name, value in numbers.items() if name in names}
        samples = self._texts.whole(event).samples
        if not numbers and not samples:
            return None
        columns = list(dict.fromkeys(name for sample in samples for name in sample))
        table = Table(columns, [[sample.get(name, "") for name in columns] for sample in samples])
        prefix = "eval" if has_steps else self._kind
        return Row(
            event.time_s, event.step, _named(prefix, numbers), samples=table if samples else None
        )


def _named(prefix: str, numbers: Mapping[str, float]) -> dict[str, float]:
    return {f"{prefix}/{name}": value for name, value in numbers.items()}


def _text(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {item}" for name, item in value.items())
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    return "" if value in (None, 0) else str(value)


def flat(config: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield a config's values as texts by dotted path: `("optimizer.learning_rate", "0.001")`."""
    for name, value in config.items():
        if isinstance(value, Mapping) and value:
            yield from flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", str(value)
