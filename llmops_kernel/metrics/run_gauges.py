"""What a run shows to Prometheus: gauges, and which of the journal's events set them. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from llmops_kernel.metrics.events import (
    EndEvent,
    EvalEvent,
    Event,
    PhaseEvent,
    ProcessEvent,
    ProgressEvent,
    QueueEvent,
    StartEvent,
    StepEvent,
)

PREFIX: Final = "ray_"
"""Ray puts it before the name of each metric of an application."""
RUN_LABELS: Final = ("run", "name", "kind", "cluster", "user")
"""Labels of every gauge. `run` is the id; a series ends some seconds after its process."""
MOST_VALUES: Final = 50
"""So many numbers of a script's own, or of an evaluation, become series; the journal has all."""


@dataclass(frozen=True)
class RunGauge:
    """A number of a run in base units, as `<PREFIX><name>` in Prometheus."""

    name: str
    help: str
    label: str = ""
    """Its label besides `RUN_LABELS`."""
    field: str = ""
    """Field of `StepEvent` that it shows."""


GAUGES: Final = (
    RunGauge(
        "llmops_run_state", "1 for the state of a run, 0 for states that it has left", "state"
    ),
    RunGauge("llmops_run_step", "Optimizer steps that are done", field="step"),
    RunGauge("llmops_run_total_steps", "Optimizer steps of the whole run"),
    RunGauge("llmops_run_loss", "Training loss of the newest step", field="loss"),
    RunGauge("llmops_run_learning_rate", "Learning rate", field="learning_rate"),
    RunGauge("llmops_run_grad_norm", "Norm of the gradients before clipping", field="grad_norm"),
    RunGauge("llmops_run_step_time_seconds", "Time of the newest step", field="step_time_s"),
    RunGauge("llmops_run_data_wait_seconds", "Of a step: waiting for rows", field="data_wait_s"),
    RunGauge(
        "llmops_run_tokens_per_second",
        "Tokens a second of all workers, padding not counted",
        field="tokens_per_second",
    ),
    RunGauge("llmops_run_mfu_ratio", "Model FLOPs utilization, 0 to 1", field="mfu"),
    RunGauge(
        "llmops_run_peak_memory_bytes",
        "Peak of a device's memory, as the allocator reports",
        field="peak_memory_bytes",
    ),
    RunGauge("llmops_run_evaluation", "Newest metrics of the evaluation", "metric"),
    RunGauge("llmops_run_value", "Newest numbers that a script or a score run reports", "metric"),
    RunGauge("llmops_run_done", "What a run without steps has done, such as rows", "unit"),
    RunGauge("llmops_run_total", "What a run without steps is to do", "unit"),
    RunGauge("llmops_run_phase_seconds", "Time of a phase, such as model_load or save", "phase"),
    RunGauge(
        "llmops_run_first_step_seconds", "From submit to the end of the first step or first result"
    ),
    RunGauge(
        "llmops_run_warm_start", "1 for a process that was forked warm, 0 for a cold one", "role"
    ),
    RunGauge("llmops_run_queued", "1 while a run waits for resources"),
)

_OF_STEP: Final = tuple(gauge for gauge in GAUGES if gauge.field)


def dashboard_text() -> str:
    """Return the JSON of a Grafana dashboard that shows the gauges."""
    return Path(__file__).with_name("run_dashboard.json").read_text(encoding="utf-8")


def dashboard_manifest(
    name: str, *, labels: Mapping[str, str], namespace: str = ""
) -> dict[str, Any]:
    """Return a ConfigMap with the dashboard.

    Grafana's sidecar, as in kube-prometheus-stack, loads it by the label `grafana_dashboard`.
    """
    metadata: dict[str, Any] = {"name": name, "labels": {"grafana_dashboard": "1", **labels}}
    if namespace:
        metadata["namespace"] = namespace
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata,
        "data": {"llmops-runs.json": dashboard_text()},
    }


Reading = tuple[str, str, float]
"""Name of a gauge, value of its own label (empty: it has none), number."""


class RunReadings:
    """Turns the events that one process of a run writes into readings of the gauges."""

    def __init__(self, *, submitted_s: float) -> None:
        """`submitted_s`: Unix time of the attempt's submission."""
        self._submitted_s = submitted_s
        self._state = ""
        self._begun_s: dict[str, float] = {}
        self._values: set[str] = set()

    def of(self, event: Event) -> Iterator[Reading]:
        """Yield what an event says; it must have been written, for its time."""
        match event:
            case StepEvent():
                yield from self._step(event)
            case StartEvent() if event.total_steps > 0:
                yield "llmops_run_total_steps", "", event.total_steps
            case EvalEvent():
                for metric, value in self._bounded(event.metrics):
                    yield "llmops_run_evaluation", metric, value
            case ProgressEvent():
                yield from self._progress(event)
            case PhaseEvent():
                yield from self._phase(event)
            case ProcessEvent():
                yield "llmops_run_warm_start", event.role, float(event.warm)
            case QueueEvent():
                waits = event.state == "begin"
                yield "llmops_run_queued", "", float(waits)
                yield from self._enter("QUEUED" if waits else "RUNNING")
            case EndEvent():
                yield from self._enter(event.state)

    def _step(self, event: StepEvent) -> Iterator[Reading]:
        for gauge in _OF_STEP:
            value = getattr(event, gauge.field)
            if value is not None:
                yield gauge.name, "", value
        for metric, value in self._bounded(event.values or {}):
            yield "llmops_run_value", metric, value

    def _progress(self, event: ProgressEvent) -> Iterator[Reading]:
        yield "llmops_run_done", event.unit, event.done
        if event.total is not None:
            yield "llmops_run_total", event.unit, event.total
        for metric, value in self._bounded(event.values):
            yield "llmops_run_value", metric, value

    def _phase(self, event: PhaseEvent) -> Iterator[Reading]:
        if event.name == "driver" and event.state == "begin":
            yield from self._enter("RUNNING")
        if event.state == "begin":
            self._begun_s[event.name] = event.time_s
            return
        begun_s = self._begun_s.pop(event.name, None)
        if begun_s is not None:  # Else another process has begun it.
            yield "llmops_run_phase_seconds", event.name, max(0.0, event.time_s - begun_s)
        if event.name == "first_step":
            took_s = event.time_s - self._submitted_s
            yield "llmops_run_first_step_seconds", "", max(0.0, took_s)

    def _enter(self, state: str) -> Iterator[Reading]:
        if self._state and self._state != state:
            yield "llmops_run_state", self._state, 0.0
        self._state = state
        yield "llmops_run_state", state, 1.0

    def _bounded(self, metrics: dict[str, float]) -> Iterator[tuple[str, float]]:
        for metric, value in metrics.items():
            if metric in self._values or len(self._values) < MOST_VALUES:
                self._values.add(metric)
                yield metric, value
