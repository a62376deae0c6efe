"""A sweep is killed and goes on, an interrupted one leaves what runs; ten runs are run again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import llmops_kernel as llmops
from llmops_kernel import api
from llmops_kernel.errors import RunNotFoundError, RunStateError
from llmops_kernel.providers.protocol import ClusterInfo
from tests.tiny_training import slow_hooks, write_training
from tests.waiting import until

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.beside, pytest.mark.timeout(600)]

COMMAND = [sys.executable, "-m", "llmops_kernel", "sweep"]


@pytest.fixture
def cluster(ray_cluster: ClusterInfo) -> llmops.Cluster:
    return llmops.cluster(ray_cluster.name)


def start(*words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*COMMAND, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def begun_sweep(name: str, num_runs: int) -> api.Sweep:
    """Return the sweep once so many of its trials were submitted, and the last one trains."""

    def reached() -> api.Sweep | None:
        try:
            sweep = api.sweep(f"{name}-sweep")
        except RunNotFoundError:
            return None
        runs = sweep.runs
        return sweep if len(runs) >= num_runs and runs[-1].view.last_step else None

    sweep = until(reached)
    assert sweep is not None
    return sweep


def test_a_killed_sweep_goes_on_and_runs_nothing_twice(
    cluster: llmops.Cluster, tmp_path: Path
) -> None:
    config = write_training(
        tmp_path / "workspace",
        "killed",
        hooks=slow_hooks(0.2),
        data={"eval": "rows.jsonl", "max_eval_rows": 4},
    )
    words = [str(config), "--cluster", cluster.name, "--over", "method.r=2,4"]
    killed = start(*words, "optimizer.learning_rate=1e-3,1e+30")
    sweep = begun_sweep("killed", 2)
    with pytest.raises(RunStateError, match="being run by process"):
        sweep.run(cluster, on_change=lambda _: None, progress=None)
    os.kill(killed.pid, signal.SIGKILL)
    killed.communicate()
    before = [run.id for run in sweep.runs]
    resumed = start("--resume", sweep.id)
    printed = resumed.communicate(timeout=400)[0]
    assert resumed.returncode == 0, printed
    after = api.sweep(sweep.id)
    trials = after.trials()
    assert [run.id for run in after.runs][: len(before)] == before
    assert len(llmops.runs(name="killed", limit=None)) == 4
    assert all(len(run.attempts) == 1 for run in after.runs)
    # A rate of 1e+30 makes the loss NaN: such a run fails or has no finite loss.
    assert [trial.counts for trial in trials] == [True, False, True, False]
    best = after.best()
    assert best is not None
    losses = {trial.run: trial.value for trial in trials if trial.counts}
    assert losses[best.id] == min(losses.values())
    assert f"run {best.id}" in printed
    assert best.group == sweep.id


def test_ctrl_c_leaves_what_runs_and_says_how_to_go_on(
    cluster: llmops.Cluster, tmp_path: Path
) -> None:
    config = write_training(
        tmp_path / "workspace", "slow", hooks=slow_hooks(0.5), training={"max_steps": 20}
    )
    words = [str(config), "--cluster", cluster.name, "method.r=2,4"]
    interrupted = start(*words)
    sweep = begun_sweep("slow", 1)
    interrupted.send_signal(signal.SIGINT)
    printed = interrupted.communicate(timeout=60)[0]
    assert interrupted.returncode == 130, printed
    assert f"--resume {sweep.id}" in printed
    assert [trial.run is None for trial in sweep.trials()] == [False, True]
    (running,) = sweep.runs
    assert running.state == "RUNNING"
    stopping = start("--resume", sweep.id, "--stop-on-interrupt")
    until(lambda: "at a time" in (stopping.stdout.readline() if stopping.stdout else ""))
    stopping.send_signal(signal.SIGINT)
    printed = stopping.communicate(timeout=60)[0]
    assert "being stopped" in printed
    until(lambda: running.state == "STOPPED")


@pytest.mark.parametrize("count", [4, pytest.param(10, marks=pytest.mark.nightly)])
def test_runs_are_run_again_and_compared_by_pairs(
    count: int, cluster: llmops.Cluster, tmp_path: Path
) -> None:
    baseline, into = f"baseline-{count}", f"again-{count}"
    config = write_training(tmp_path / "workspace", into, training={"max_steps": 2})
    sweep = cluster.sweep(config, {"seed": list(range(count))})
    for run in sweep.runs:
        run.group = baseline
    hook = config.parent / "hooks.py"
    hook.write_text(slow_hooks(0.3))  # Code of today that the recorded configs do not name.
    again = llmops.runs(f"group == '{baseline}'", limit=None).rerun(into=into)
    pairs = again.pairs()
    assert len(pairs) == count
    assert all(pair.is_compared for pair in pairs)
    by_id = {run.id: run for run in llmops.runs(name=into, limit=None)}
    for pair in pairs:
        assert pair.after is not None
        new = by_id[pair.after].record
        assert new.parent == pair.before.run_id
        assert new.config == pair.before.config
        assert new.files != pair.before.files
    # The same seeds and data on the same machine: the losses are the same.
    loss = next(line for line in again.table().rows if line[0] == "loss")
    assert loss[1] == str(count)
    assert loss[4] == "same"
    assert len(llmops.runs(f"group == '{into}'", limit=None)) == count
    once_more = llmops.runs(f"group == '{baseline}'", limit=None).rerun(into=into)
    assert [pair.after for pair in once_more.pairs()] == [pair.after for pair in pairs]
    assert len(llmops.runs(name=into, limit=None)) == 2 * count
