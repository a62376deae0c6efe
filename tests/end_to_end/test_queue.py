"""Several runs on a cluster with room for one: what waits shows for what, and can be ended."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

import llmops_kernel as llmops
from llmops_kernel.metrics.events import PhaseEvent, QueueEvent
from llmops_kernel.providers.protocol import ClusterInfo
from llmops_kernel.store.store import RunStore
from llmops_kernel.views.state_text import state_text
from llmops_kernel.views.summary import list_runs
from tests.end_to_end.conftest import at_step, processes
from tests.end_to_end.script_runs import write
from tests.messages import missing
from tests.tiny_training import write_training
from tests.waiting import until

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.beside, pytest.mark.timeout(600)]

DRIVER = "llmops_kernel.train.ray.entrypoint"
Submit = Callable[..., llmops.Run]
GATE = """
import os, time
from transformers import TrainerCallback

class Gate(TrainerCallback):
    def on_step_end(self, args, state, control, **kwargs):
        while state.global_step == 10 and not os.path.exists({gate!r}):
            time.sleep(0.05)
        time.sleep(0.1)

def callbacks():
    return [Gate()]
"""
SCRIPT = """
import os, time
from llmops_kernel import track

kept = track.resume_checkpoint()
begin = int(kept.read_text()) if kept else 0
for step in range(begin + 1, 41):
    time.sleep(0.1)
    track.step(step=step, loss=1.0 / step)
    while step == 10 and not os.path.exists({gate!r}):
        time.sleep(0.05)
    if track.should_stop() or step == 40:
        open("state.txt", "w").write(str(step))
        track.checkpoint("state.txt", step=step)
        break
"""


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


def test_a_training_and_a_script_of_low_priority_give_way_and_go_on(
    ray_cluster: ClusterInfo, tmp_path: Path
) -> None:
    cluster, cpus = llmops.cluster(ray_cluster.name), int(ray_cluster.num_cpus or 1)
    whole = {"num_workers": 1, "cpus_per_worker": cpus}
    training = write_training(
        tmp_path / "low",
        "low",
        hooks=GATE.format(gate=str(tmp_path / "gate-0")),
        parallelism=whole,
        training={"max_steps": 40},
        checkpoint={"every_steps": 1000},
    )
    (tmp_path / "script").mkdir()
    script = write(tmp_path / "script", SCRIPT.format(gate=str(tmp_path / "gate-1")))
    resources = {"cpus": cpus}
    lows = (
        lambda: cluster.submit(training, priority="low"),
        lambda: cluster.submit(script, num_workers=1, resources=resources, priority="low"),
    )
    short = write_training(tmp_path / "short", "short", parallelism=whole)
    for number, submit_low in enumerate(lows):
        low = submit_low()
        until(at_step(low, 5))
        first = cluster.submit(short)
        until(in_state(first, "QUEUED"))  # It has asked for room by then.
        (tmp_path / f"gate-{number}").touch()
        assert first.wait(200) == "SUCCEEDED"
        assert low.wait(200) == "SUCCEEDED"
        assert [event.step for event in low.view.steps] == [*range(1, 41)]  # Each once.
        assert low.view.attempt == 1
        [said] = [w.message for w in low.view.warnings if first.id in w.message]
        assert not missing(said, "Gave way", "low priority")
        [waited] = [e for e in low.events() if isinstance(e, QueueEvent) and e.state == "end"]
        assert waited.time_s >= (first.view.end or waited).time_s - 1.0
