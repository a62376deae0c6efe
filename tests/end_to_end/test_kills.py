"""Kill -9 of every process of a run: nothing journalled is lost, states are told truthfully."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

import llmops_kernel as llmops
from llmops_kernel.store.journal.journal import Deduplicator
from llmops_kernel.store.journal.training_view import TrainingView
from llmops_kernel.views.state_text import state_text
from tests.end_to_end.conftest import at_step, processes, workers
from tests.waiting import until

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(900)]

Submit = Callable[..., llmops.Run]


def losses(run: llmops.Run) -> dict[int, float]:
    return {step.step: step.loss or 0.0 for step in run.view.steps}


def assert_whole(run: llmops.Run) -> None:
    """Each stream's numbers have no gap: no event that was written is missing."""
    seen = Deduplicator()
    seen.new(run.events())
    assert seen.gaps() == {}


def test_a_killed_worker_is_restarted_and_the_run_ends_as_if_undisturbed(submit: Submit) -> None:
    undisturbed = submit()
    assert undisturbed.wait(400) == "SUCCEEDED"
    run = submit()
    until(at_step(run, 12))
    before = losses(run)
    os.kill(workers()[-1].pid, signal.SIGKILL)
    assert run.wait(400) == "SUCCEEDED"
    restart = run.view.restarts[-1]
    assert restart.from_step in (10, 15)
    assert restart.cause.startswith("worker rank")
    assert "was killed" in restart.cause
    assert restart.failures_left == 0
    assert losses(run) == pytest.approx(losses(undisturbed), abs=1e-3)
    # Until the new workers report, the run is shown as restarting, with the cause.
    so_far = [event for event in run.events() if event.time_s <= restart.time_s]
    assert TrainingView(so_far).state == "RESTARTING"
    assert restart.cause in state_text(TrainingView(so_far))
    # What had been journalled before the kill is still in the journal.
    journalled = {e.step for e in run.events() if e.kind == "step" and "worker-1" in e.stream}
    assert set(before) <= journalled
    assert_whole(run)


def test_a_killed_worker_is_one_sentence_in_each_place(submit: Submit) -> None:
    run = submit(max_failures=0)
    until(at_step(run, 2))
    os.kill(workers()[-1].pid, signal.SIGKILL)
    assert run.wait(120, raise_on_failure=False) == "FAILED"
    # The reason is parsed from Ray's text: this is what Ray 2.60 reports for SIGKILL.
    assert re.fullmatch(
        r"Worker rank [01] was killed, probably by signal 9 because its node ran out of memory"
        r" \(node [\d.]+\)\. No restart is left \(training\.max_failures=0\)\.",
        run.view.message,
    )
    assert [failure.message for failure in run.view.failures] == [run.view.message]
    assert "training.micro_batch_size=1" in run.view.remedy
    assert not run.view.restarts


def test_a_killed_driver_is_reported_and_a_retry_goes_on(submit: Submit) -> None:
    run = submit()
    until(at_step(run, 6))
    for process in processes("llmops_kernel.train.ray.entrypoint"):
        process.kill()
    assert run.wait(120, raise_on_failure=False) == "FAILED"
    assert "driver" in run.view.message.lower()
    assert run.view.remedy
    until(lambda: workers() == [], timeout_s=60)
    saved = run.view.checkpoints[-1].step
    run.retry()
    assert run.wait(400) == "SUCCEEDED"
    assert run.view.attempt == 2
    assert run.view.start is not None
    assert run.view.start.first_step == saved + 1
    assert_whole(run)


def test_a_killed_kernel_loses_nothing(
    submit: Submit, cluster: llmops.Cluster, workspace: Path
) -> None:
    from jupyter_client.manager import start_new_kernel

    manager, client = start_new_kernel(kernel_name="python3")
    code = (
        "import llmops_kernel as llmops\n"
        f"run = llmops.cluster({cluster.name!r}).submit({str(workspace / 'chaos.train.yaml')!r})\n"
        "run.show()\nprint('id=' + run.id)\n"
    )
    printed: list[str] = []

    def note(message: dict[str, Any]) -> None:
        printed.append(message["content"].get("text", ""))

    client.execute_interactive(code, output_hook=note, timeout=120)
    run_id = "".join(printed).split("id=")[1].split()[0]
    os.kill(manager.provisioner.pid, signal.SIGKILL)  # type: ignore[attr-defined]
    client.stop_channels()
    run = llmops.attach(run_id)
    assert run.wait(400) == "SUCCEEDED"
    assert sorted(losses(run)) == list(range(1, 25))
    assert_whole(run)


def test_a_killed_follower_comes_back_to_every_row(submit: Submit) -> None:
    run = submit()
    script = f"import llmops_kernel as llmops; llmops.attach({run.id!r}).wait()"
    for step in (3, 9):
        follower = subprocess.Popen(
            [sys.executable, "-c", script], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        until(at_step(run, step))
        follower.kill()
        follower.wait()
    again = llmops.attach(run.id)
    assert again.wait(400) == "SUCCEEDED"
    assert list(again.metrics().index) == list(range(1, 25))
    assert_whole(again)


def test_a_killed_head_is_reported_and_a_new_one_finishes_the_run(
    workspace: Path, tmp_path: Path
) -> None:
    """A cluster of its own, for the others share theirs."""
    from llmops_kernel.config.models.cluster import ClusterTemplate
    from llmops_kernel.providers.local.provider import LocalProvider

    provider = LocalProvider()
    template = ClusterTemplate(name="mortal", num_cpus=2)
    provider.up(template)
    try:
        run = llmops.cluster("mortal").submit(workspace / "chaos.train.yaml")
        until(at_step(run, 7))
        before = losses(run)
        os.kill(_head_pid("mortal"), signal.SIGKILL)
        for process in processes("gcs_server"):
            # It may end by itself at any moment, the head being gone.
            with contextlib.suppress(psutil.Error):
                if "mortal" in " ".join(process.cmdline()):
                    process.kill()
        assert run.wait(180, raise_on_failure=False) == "FAILED"
        assert "mortal" in run.view.message
        assert set(before) <= set(losses(run))
        saved = run.view.checkpoints[-1].step
        provider.up(template)
        time.sleep(1)
        run.retry()
        assert run.wait(400) == "SUCCEEDED"
        assert run.view.start is not None
        assert run.view.start.first_step == saved + 1
        assert_whole(run)
    finally:
        provider.down("mortal")


def _head_pid(name: str) -> int:
    from llmops_kernel.store.paths import home

    record = json.loads((home() / "clusters" / name / "cluster.json").read_text())
    return int(record["pid"])
