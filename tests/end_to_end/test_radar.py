"""Workers that make no step on a real cluster: who waits for whom is named, and the run goes on."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import llmops_kernel as llmops
from llmops_kernel.driver.beats import beats_folder
from llmops_kernel.metrics.events import StallEvent
from llmops_kernel.providers.protocol import ClusterInfo
from tests.end_to_end.conftest import at_step
from tests.end_to_end.script_runs import succeeded, write
from tests.messages import missing
from tests.tiny_training import write_training
from tests.waiting import until

# Alone: how soon a stall is seen, and which worker is slow, other work changes.
pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(600)]

HOOKS = """
import os, time
import torch, torch.distributed as dist
from transformers import TrainerCallback

FOLDER = {folder!r}

def is_free(name):
    return os.path.exists(os.path.join(FOLDER, name))

def endless():
    turns = 0
    while not is_free("loop"):
        turns += 1  # the endless loop

class Slow(torch.utils.data.Dataset):
    def __len__(self):
        return 1

    def __getitem__(self, number):
        while not is_free("loader"):
            time.sleep(0.05)  # the slow loader
        return number

class Trouble(TrainerCallback):
    def on_step_end(self, args, state, control, **kwargs):
        time.sleep(0.1)
        is_last = dist.get_rank() == 1
        if state.global_step == 8 and is_last:
            endless()
        if state.global_step == 16 and is_last:
            next(iter(torch.utils.data.DataLoader(Slow())))

def callbacks():
    return [Trouble()]
"""


SLOW = """
import os, time
from transformers import TrainerCallback

class Slow(TrainerCallback):
    def on_step_end(self, *args, **kwargs):
        time.sleep(0.5 if os.environ["RANK"] == "1" else 0.2)

def callbacks():
    return [Slow()]
"""


@pytest.fixture
def submit(ray_cluster: ClusterInfo) -> Callable[..., llmops.Run]:
    cluster = llmops.cluster(ray_cluster.name)
    return cluster.submit


def two_workers(folder: Path, hooks: str, *, steps: int = 20, **sections: object) -> Path:
    training = {"global_batch_size": 4, "max_steps": steps}
    parallelism = {"num_workers": 2}
    sections = {"training": training, "parallelism": parallelism, **sections}
    return write_training(folder, "radar", hooks=hooks, rows=96, **sections)


def seen_stall(run: llmops.Run, step: int) -> StallEvent:
    """Wait for the stall after that step; it is seen in three steps and ten seconds."""
    until(at_step(run, step))
    stall = until(lambda: run.view.stall, report=run.logs)
    newest = run.view.steps[-1]
    assert stall.step == newest.step == step
    assert stall.time_s - newest.time_s <= 3 * (newest.step_time_s or 0.0) + 10.0
    assert run.view.warnings[-1].message.endswith(stall.message)
    return stall


def test_each_way_to_make_no_step_is_named(
    submit: Callable[..., llmops.Run], tmp_path: Path
) -> None:
    run = submit(two_workers(tmp_path / "ws", HOOKS.format(folder=str(tmp_path))))
    line = HOOKS.splitlines().index("        turns += 1  # the endless loop") + 1
    loop = seen_stall(run, 7)
    guilty, waiting = loop.groups
    assert (guilty.ranks, guilty.state, waiting.ranks) == ((1,), "code", (0,))
    own = [frame for frame in guilty.frames if frame.startswith("hooks.py:")]
    assert guilty.place == own[0]
    assert {f"hooks.py:{line - 1} (endless)", f"hooks.py:{line} (endless)"} & {*own}
    assert waiting.state == "collective"
    assert not missing(loop.message, "Rank 1", "Rank 0 waits in all_reduce", "for rank 1")
    assert "endless" in Path(loop.file).read_text()
    (tmp_path / "loop").touch()

    loader = seen_stall(run, 15)
    assert (loader.groups[0].ranks, loader.groups[0].state) == ((1,), "data")
    assert "Slow.__getitem__" in loader.groups[0].place
    (tmp_path / "loader").touch()
    assert run.wait(120) == "SUCCEEDED"
    assert run.view.stall is None
    assert not beats_folder(run.id, 1).exists()


def test_a_slow_and_then_a_stopped_worker_are_named_and_the_run_goes_on(
    submit: Callable[..., llmops.Run], tmp_path: Path
) -> None:
    # Many enough for the samples, of which each five seconds one is taken.
    config = two_workers(tmp_path / "ws", SLOW, steps=60, checkpoint={"every_steps": 5})
    run = submit(config)
    [warning] = until(lambda: run.view.warnings, report=run.logs)
    assert not missing(warning.message, "Rank 1 on", "slower than the other", "work of its own")
    until(lambda: run.view.system[-1].workers[1].is_slow)
    assert not run.view.system[-1].workers[0].is_slow
    system = until(lambda: run.view.system)[-1]
    pids = {worker.rank: worker.pid for worker in system.workers}
    assert pids.keys() == {0, 1}
    os.kill(pids[1], signal.SIGSTOP)
    stopped_s = time.time()
    stall = until(lambda: run.view.stall, report=run.logs)
    step_s = stall.usual_s or 0.0
    assert stall.time_s - stopped_s <= 3 * step_s + 10.0
    assert (stall.groups[0].ranks, stall.groups[0].state) == ((1,), "stopped")
    assert not missing(stall.message, "Rank 1", pids[1], "stopped", "Rank 0 waits")
    run.restart()
    assert run.wait(200) == "SUCCEEDED"
    assert run.view.attempt == 2
    # One that it was stopped in is not whole.
    checkpoints = {5 * ((stall.step - 1) // 5), 5 * (stall.step // 5)}
    assert min(e.step for e in run.view.steps if e.attempt == 2) - 1 in checkpoints


SCRIPT = """
import time
import torch.distributed as dist
from llmops_kernel import track

def never_comes():
    while True:
        time.sleep(0.05)

dist.init_process_group("gloo")
begun = track.resume_checkpoint()
for step in range(11 if begun else 1, 31):
    time.sleep(0.2)
    if step == 30 and not begun and dist.get_rank() == 1:
        never_comes()
    dist.barrier()
    track.step(step=step, loss=1.0, data_wait_s=0.05)
    if step == 10:
        open("state.txt", "w").close()
        track.checkpoint("state.txt")
"""


def test_a_script_is_measured_and_goes_on_where_a_rank_never_comes(
    submit: Callable[..., llmops.Run], tmp_path: Path
) -> None:
    run = submit(write(tmp_path, SCRIPT), num_workers=2)
    stall = until(lambda: run.view.stall, report=run.logs)
    newest = run.view.steps[-1]
    assert newest.step == 29
    assert stall.time_s - newest.time_s <= 3 * (newest.step_time_s or 0.0) + 10.0
    absent, waiting = stall.groups
    assert (absent.ranks, absent.state, waiting.state) == ((1,), "code", "collective")
    assert "never_comes" in absent.place
    assert waiting.place.startswith("barrier at train.py:")
    table = run.system()
    workers = table[table["rank"].notna()]
    assert set(workers["rank"]) == {0, 1}
    known = workers.dropna(subset=["step_s"])
    assert known["step_s"].between(0.2, 1.5).all()
    assert known["data_s"].to_numpy() == pytest.approx(0.05)
    assert known["others_s"].isna().all()  # Nobody has measured it.
    assert run.view.energy_j is None
    run.restart()
    succeeded(run)
    assert next(e.step for e in run.view.steps if e.attempt == 2) == 11
