"""Stacks of real processes, and who waits for whom in those written by hand."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from llmops_kernel.driver.beats import read_beats
from llmops_kernel.driver.stacks import (
    Frame,
    Standing,
    dump,
    grouped,
    is_known_to_take_long,
    shown_path,
    stand,
    state_of,
)
from llmops_kernel.metrics.system import stacks_text, verdict
from tests.messages import missing
from tests.waiting import until

C10D = "/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py"
ALL_REDUCE = (
    Frame("all_reduce", C10D, 3252),
    Frame("wrapper", C10D.replace("distributed_c10d", "c10d_logger"), 83),
    Frame("main", "/ray/runtime_resources/working_dir_files/_ray_pkg_0a1b/train.py", 12),
)
BROADCAST = (Frame("broadcast", C10D, 2900), ALL_REDUCE[2])
LOOP = (Frame("spin", "/ray/working_dir_files/_ray_pkg_0a1b/lib/own.py", 4),)
LOADER = (
    Frame("__getitem__", "/ray/working_dir_files/_ray_pkg_0a1b/data.py", 9),
    Frame("fetch", "/venv/lib/python3.11/site-packages/torch/utils/data/_utils/fetch.py", 52),
)
PROGRAM = """
import sys
from pathlib import Path
from llmops_kernel.driver.beats import BeatWriter

def spin():
    BeatWriter(Path(sys.argv[1]), rank=1, world_size=2).step(1, time_s=1.0)
    while True:
        pass

spin()
"""


def at(rank: int, frames: tuple[Frame, ...] = (), **more: bool) -> Standing:
    return Standing(rank, 100 + rank, f"host-{rank}", frames=frames, **more)


@pytest.fixture
def looping(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    process = subprocess.Popen([sys.executable, str(program), str(tmp_path)])
    until(lambda: any(beat.step for beat in read_beats(tmp_path)))
    yield process, tmp_path
    process.kill()
    process.wait()


def test_a_loop_and_then_a_stop_are_seen_from_outside(
    looping: tuple[subprocess.Popen[bytes], Path],
) -> None:
    process, folder = looping
    [standing] = stand(read_beats(folder))
    if standing.note:
        pytest.skip(standing.note)
    assert standing.frames[0].function == "spin"
    assert Path(standing.frames[0].file).name == "program.py"
    assert (state_of(standing), standing.is_stopped) == ("code", False)
    process.send_signal(signal.SIGSTOP)
    [stopped] = until(lambda: [one for one in stand(read_beats(folder)) if one.is_stopped])
    assert state_of(stopped) == "stopped"
    assert stopped.frames[0].function == "spin"
    os.kill(process.pid, signal.SIGCONT)


def test_a_process_without_python_has_a_reason_instead_of_a_stack() -> None:
    sleeper = subprocess.Popen(["sleep", "60"])
    try:
        threads, note = dump(sleeper.pid)
    finally:
        sleeper.kill()
        sleeper.wait()
    assert threads == []
    assert note


def test_those_who_wait_are_told_from_the_one_who_is_waited_for() -> None:
    groups = grouped([at(0, ALL_REDUCE), at(2, ALL_REDUCE), at(1, LOOP)])
    assert [(g.ranks, g.state) for g in groups] == [((1,), "code"), ((0, 2), "collective")]
    assert groups[0].place == "lib/own.py:4 (spin)"
    assert groups[1].place == "all_reduce at train.py:12 (main)"
    text = verdict(groups)
    assert not missing(text, "Rank 1", "pid 101 on host-1", "lib/own.py:4 (spin)")
    assert "Ranks 0, 2 wait in all_reduce at train.py:12 (main) for rank 1, which is not" in text
    assert not missing(stacks_text(groups), "0 (pid 100 on host-0), 2 (pid 102 on host-2)", "spin")


def test_a_stopped_process_is_stopped_whatever_it_was_doing() -> None:
    [group] = grouped([at(1, ALL_REDUCE, is_stopped=True)])
    assert group.state == "stopped"
    assert not missing(verdict([group]), "Rank 1", "state T")


def test_different_collectives_are_a_mismatch() -> None:
    text = verdict(grouped([at(0, ALL_REDUCE), at(1, BROADCAST)]))
    assert not missing(text, "different collectives", "rank 0 in all_reduce", "rank 1 in broadcast")


def test_all_in_one_collective_is_the_network_or_a_device() -> None:
    text = verdict(grouped([at(0, ALL_REDUCE), at(1, ALL_REDUCE)]))
    assert not missing(text, "Ranks 0, 1 wait in the same collective", "network")


def test_an_idle_backward_pass_waits_for_gradients_and_a_busy_one_computes() -> None:
    graph = "/venv/lib/python3.11/site-packages/torch/autograd/graph.py"
    backward = (Frame("_engine_run_backward", graph, 865),)
    assert state_of(at(0, backward, is_idle=True)) == "collective"
    assert state_of(at(0, backward)) == "code"


def test_a_loader_is_told_from_computing() -> None:
    assert state_of(at(0, LOADER)) == "data"
    assert "data.py:9 (__getitem__)" in verdict(grouped([at(0, LOADER)]))


def test_who_cannot_be_looked_at_says_why() -> None:
    groups = grouped([Standing(1, 101, "host-1", note="py-spy is not installed on this node")])
    assert groups[0].state == "unknown"
    assert "py-spy is not installed" in verdict(groups)
    assert state_of(at(1, is_there=False)) == "gone"


def test_a_compilation_and_with_a_guess_an_evaluation_take_long() -> None:
    dynamo = (Frame("step", "/venv/site-packages/torch/_dynamo/symbolic_convert.py", 1),)
    evaluate = (Frame("evaluate", "/ray/working_dir_files/_ray_pkg_0a/train.py", 7),)
    assert is_known_to_take_long([at(0, dynamo)], guess=False)
    assert not is_known_to_take_long([at(0, evaluate)], guess=False)
    assert is_known_to_take_long([at(0, evaluate)], guess=True)
    assert not is_known_to_take_long([at(0, evaluate, is_stopped=True)], guess=True)
    assert not is_known_to_take_long([at(0, LOOP), at(1, ALL_REDUCE)], guess=True)


def test_paths_are_shown_as_a_user_knows_them() -> None:
    assert shown_path(C10D) == "torch/distributed/distributed_c10d.py"
    assert shown_path("/x/working_dir_files/_ray_pkg_0f/src/a.py") == "src/a.py"
    assert shown_path("/data/a.py") == "/data/a.py"
