"""Several runs on a cluster with room for one: what waits shows for what, and can be ended."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

import llmops_kernel as llmops
from llmops_kernel.metrics.events import PhaseEvent, QueueEvent
from llmops_kernel.providers.protocol import ClusterInfo
from llmops_kernel.store.store import RunStore
from llmops_kernel.views.state_text import state_text
from llmops_kernel.views.summary import list_runs
from tests.end_to_end.conftest import processes
from tests.waiting import until

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.beside, pytest.mark.timeout(600)]

DRIVER = "llmops_kernel.train.ray.entrypoint"
Submit = Callable[..., llmops.Run]


def in_state(run: llmops.Run, state: str) -> Callable[[], bool]:
    def reached() -> bool:
        now = run.view.state
        assert now == state or now not in ("FAILED", "SUCCEEDED"), run.view.message
        return bool(now == state)

    return reached


def killed_in_queue(submit: Callable[[], llmops.Run]) -> llmops.Run:
    """Return a run whose driver was killed while it waited."""
    drivers = {process.pid for process in processes(DRIVER)}
    third = submit()
    until(in_state(third, "QUEUED"))
    until(lambda: (third.view.queue or QueueEvent(state="end")).place == 2)
    for process in processes(DRIVER):
        if process.pid not in drivers:
            os.kill(process.pid, signal.SIGKILL)
    return third


def is_stopped_in_queue(submit: Callable[[], llmops.Run]) -> None:
    """A stop ends it at once: it has no workers that could save a checkpoint."""
    fourth = submit()
    until(in_state(fourth, "QUEUED"))
    fourth.stop()
    assert fourth.wait(120) == "STOPPED"
    assert fourth.view.message == "Stopped while it waited for free resources on the cluster."


def has_a_log_of_its_training(run: llmops.Run) -> None:
    """The log has the wait and the steps, without the lines of Ray itself."""
    until(lambda: " step 1 of 2,000, loss " in run.logs())
    assert " waiting for resources (place 1 of 1): needs " in run.logs()
    assert "INFO" not in run.logs()
    assert "Running entrypoint for job" in run.logs(all_lines=True)


def test_a_second_run_is_queued_until_the_first_one_leaves(
    submit: Submit, ray_cluster: ClusterInfo
) -> None:
    cpus = ray_cluster.num_cpus
    assert cpus
    whole = {
        "parallelism.num_workers": 1,
        "parallelism.cpus_per_worker": int(cpus),
        "training.max_steps": 2000,
    }
    with ThreadPoolExecutor() as pool:
        runs = list(pool.map(lambda _: submit(**whole), range(2)))
    until(lambda: sorted(run.view.state for run in runs) == ["QUEUED", "RUNNING"])
    first, second = sorted(runs, key=lambda run: str(run.view.state), reverse=True)
    each = f"{int(cpus)} CPU{'s' if cpus > 1 else ''}"
    verb = "are" if cpus > 1 else "is"
    waits = (
        f"Place 1 of 1 in the queue: needs {each}; {int(cpus)} of {each} {verb} used by run"
        f" {first.id}"
    )
    # Until the first one's workers have started it is behind that one, and says so.
    until(lambda: state_text(second.view) == waits)
    row = next(one for one in list_runs(RunStore(), hidden=True) if one.run_id == second.id)
    assert (row.state, row.reason) == ("QUEUED", state_text(second.view))

    killed = killed_in_queue(partial(submit, **whole))
    until(lambda: (second.view.queue or QueueEvent(state="end")).length == 1)
    is_stopped_in_queue(partial(submit, **whole))

    assert killed.wait(120, raise_on_failure=False) == "FAILED"
    first.stop()
    until(in_state(second, "RUNNING"))
    assert first.wait(120) == "STOPPED"
    until(lambda: bool(second.view.rows))
    phases = [e for e in second.events() if isinstance(e, PhaseEvent) and e.name == "queue"]
    assert [event.state for event in phases] == ["begin", "end"]
    assert second.view.state == "RUNNING"
    has_a_log_of_its_training(second)
