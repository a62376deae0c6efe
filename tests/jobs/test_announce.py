"""What a follower shows on the cluster of its run: when, how often, and who may."""

from __future__ import annotations

import threading
import time

from llmops_kernel.errors import ClusterUnreachableError
from llmops_kernel.jobs.announce import Announcer
from llmops_kernel.metrics.events import EndEvent, PhaseEvent, StartEvent
from llmops_kernel.providers.capabilities import RunStatus
from llmops_kernel.services.backend import Backend
from llmops_kernel.services.runs import Run
from llmops_kernel.store.journal.training_view import TrainingView
from llmops_kernel.store.store import RunStore
from tests.jobs.fake_provider import FakeProvider
from tests.server.runs import make_run, step
from tests.waiting import until

START = StartEvent(
    total_steps=10, num_workers=1, global_batch_size=1, device="cpu", dtype="float32", attempt=1
)
BEGUN = [PhaseEvent(name="driver", state="begin", attempt=1), START]


class Shows:
    """A provider that remembers what it was to show; `gate` holds it, as a slow server does."""

    def __init__(self, *, may: bool = True, fails: bool = False) -> None:
        self.shown: list[RunStatus] = []
        self.gate = threading.Event()
        self.gate.set()
        self._may, self._fails = may, fails

    def show_run(self, name: str, shown: RunStatus) -> bool:
        assert name == "ml/one"
        self.gate.wait()
        self.shown.append(shown)
        if self._fails:
            raise ClusterUnreachableError("no route", remedy="wait")
        return self._may


def announcer(provider: Shows, *, every_s: float = 1000.0) -> Announcer:
    return Announcer(provider, "r-1", target=lambda: ("ml/one", 5.0), every_s=every_s)


def steps(view: TrainingView, *numbers: int) -> None:
    view.apply([step(number, attempt=1, seq=100 + number) for number in numbers])


def test_numbers_wait_and_states_do_not() -> None:
    provider, view = Shows(), TrainingView(BEGUN)
    target = announcer(provider)
    target.nudge(view)
    until(lambda: len(provider.shown) == 1)
    first_state = provider.shown[0].state
    for number in range(1, 4):
        steps(view, number)
        target.nudge(view)
    view.apply([EndEvent(state="SUCCEEDED", last_step=3, attempt=1, seq=200)])
    target.nudge(view)
    target.nudge(view)
    target.finish(5.0)
    until(lambda: provider.shown[-1].has_ended)
    states = [each.state for each in provider.shown]
    assert states == list(dict.fromkeys(states))
    assert (states[0], states[-1]) == (first_state, "SUCCEEDED")
    last = provider.shown[-1]
    assert (last.step, last.loss, last.submitted_s, last.was_over) == ("3/10", "1.3333", 5.0, False)


def test_a_slow_server_delays_nobody_and_gets_the_newest() -> None:
    provider, view = Shows(), TrainingView(BEGUN)
    provider.gate.clear()
    target, begun_s = announcer(provider, every_s=0.0), time.monotonic()
    for number in range(1, 9):
        steps(view, number)
        target.nudge(view)
    assert time.monotonic() - begun_s < 1.0
    provider.gate.set()
    until(lambda: bool(provider.shown) and provider.shown[-1].step == "8/10")
    assert len(provider.shown) <= 2


def test_without_the_right_it_is_quiet_and_a_failure_is_none() -> None:
    view = TrainingView(BEGUN)
    for provider, expected in ((Shows(may=False), 1), (Shows(fails=True), 3)):
        target = announcer(provider, every_s=0.0)
        for number in range(1, 4):
            steps(view, number)
            target.nudge(view)
            until(lambda target=target: target._thread is None)
        assert len(provider.shown) == expected


def test_a_run_that_was_over_says_so() -> None:
    provider = Shows()
    end = EndEvent(state="FAILED", last_step=0, attempt=1, seq=200)
    announcer(provider).nudge(TrainingView([*BEGUN, end]))
    until(lambda: len(provider.shown) == 1)
    assert provider.shown[0].was_over


class ShowingProvider(FakeProvider):
    """A provider whose clusters show their newest run."""

    def __init__(self) -> None:
        super().__init__()
        self.shown: list[RunStatus] = []

    def show_run(self, name: str, shown: RunStatus) -> bool:
        self.shown.append(shown)
        return True


def test_whoever_follows_a_run_shows_it(store: RunStore) -> None:
    make_run(store, "r-1", steps=3, ended=None)
    provider = ShowingProvider()
    follower = Run(Backend(store=store), "r-1", provider=provider).follower()
    follower.poll()
    until(lambda: len(provider.shown) == 1)
    follower.poll()
    assert [(each.run, each.step, each.was_over) for each in provider.shown] == [
        ("r-1", "3/3", False)
    ]
    assert provider.shown[0].submitted_s == store.attempts("r-1")[-1].submitted_s
