"""The metrics of a run in Ray: labels, what is left out, and that they never end a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from llmops_kernel.driver.run_metrics import STEP_EVERY_S, FollowedJournal, RunMetrics, ray_gauges
from llmops_kernel.metrics.events import EndEvent, EvalEvent, PhaseEvent, StepEvent
from llmops_kernel.metrics.run_gauges import GAUGES
from llmops_kernel.store.journal.journal import JournalWriter
from llmops_kernel.store.record import RunSpec

SPEC = RunSpec(
    run_id="r-1", kind="train", attempt=1, config={"name": "menu"}, run_root="/no",
    submitted_s=1.0, user="ann", cluster="lab",
)  # fmt: skip
OF_RUN = {"run": "r-1", "name": "menu", "kind": "train", "cluster": "lab", "user": "ann"}


class Recorded(dict[str, Any]):
    """Stands for Ray's gauges: keeps what was set last."""

    def __init__(self) -> None:
        super().__init__({gauge.name: Setter(self, gauge.name) for gauge in GAUGES})
        self.values_set: dict[tuple[str, str], float] = {}
        self.tags: list[dict[str, str]] = []


class Setter:
    def __init__(self, owner: Recorded, name: str) -> None:
        self._owner, self._name = owner, name

    def set(self, value: float, tags: dict[str, str]) -> None:
        own = [text for label, text in tags.items() if label not in OF_RUN]
        self._owner.values_set[self._name, "".join(own)] = value
        self._owner.tags.append(tags)


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def test_each_series_names_its_run() -> None:
    gauges = Recorded()
    metrics = RunMetrics(SPEC, gauges=lambda: gauges)
    metrics.take(EvalEvent(step=1, metrics={"eval_loss": 2.0}))
    metrics.take(StepEvent(step=1, loss=3.0))
    assert gauges.tags == [{**OF_RUN, "metric": "eval_loss"}, OF_RUN, OF_RUN]


def test_of_quick_steps_the_last_one_before_another_event_is_shown() -> None:
    gauges, clock = Recorded(), Clock()
    metrics = RunMetrics(SPEC, gauges=lambda: gauges, clock=clock)
    for step in range(1, 6):
        metrics.take(StepEvent(step=step, loss=float(step)))
        clock.now_s += STEP_EVERY_S / 10
    assert gauges.values_set["llmops_run_loss", ""] == 1.0
    metrics.take(EndEvent(state="SUCCEEDED"))
    assert gauges.values_set["llmops_run_loss", ""] == 5.0
    assert gauges.values_set["llmops_run_state", "SUCCEEDED"] == 1.0


def test_what_comes_before_the_connection_to_ray_is_shown_after_it() -> None:
    gauges = Recorded()
    answers = iter([None, None, gauges])
    metrics = RunMetrics(SPEC, gauges=lambda: next(answers))
    metrics.take(PhaseEvent(name="driver", state="begin", time_s=2.0))
    metrics.take(PhaseEvent(name="driver", state="end", time_s=2.5))
    assert not gauges.values_set
    metrics.take(PhaseEvent(name="first_step", state="end", time_s=3.0))
    assert gauges.values_set == {
        ("llmops_run_state", "RUNNING"): 1.0,
        ("llmops_run_phase_seconds", "driver"): 0.5,
        ("llmops_run_first_step_seconds", ""): 2.0,
    }


def test_metrics_that_fail_are_given_up() -> None:
    def broken() -> None:
        raise RuntimeError("no Ray here")

    metrics = RunMetrics(SPEC, gauges=broken)
    for step in range(3):
        metrics.take(StepEvent(step=step))


def test_a_process_without_ray_has_no_gauges() -> None:
    assert ray_gauges() is None


def test_a_plain_script_is_followed_once_it_has_lasted(tmp_path: Path) -> None:
    clock, connected = Clock(), list[float]()
    writer = JournalWriter([tmp_path], stream="1-worker-0", attempt=1)
    writer.emit(StepEvent(step=1, loss=1.0))
    followed = FollowedJournal(
        SPEC, tmp_path, connect=lambda: connected.append(clock.now_s), clock=clock
    )
    followed.look()
    assert not connected
    clock.now_s = 11.0
    followed.look()
    clock.now_s = 14.0
    followed.look()
    assert connected == [11.0]
