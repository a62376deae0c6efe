"""A script that is started once: what the journal says, however it ends."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from llmops_kernel.train.script.ends import STOP_WAIT_ENV_VAR
from tests.train.script.conftest import ScriptRun
from tests.waiting import until
from tests.warm.programs import programs

STEPS = """
    import sys, time
    from llmops_kernel import track

    done = 0
    resume = track.resume_checkpoint()
    if resume is not None:
        done = int(resume.read_text())
    track.start(total_steps=int(sys.argv[1]))
    for step in range(done + 1, int(sys.argv[1]) + 1):
        time.sleep(float(sys.argv[2]))
        track.step(step=step, loss=1.0 / step, tokens=100)
        if track.should_stop():
            with open("state.txt", "w") as file:
                file.write(str(step))
            track.checkpoint("state.txt")
            break
"""


def _end(run: ScriptRun) -> Any:
    [end] = run.events("end")
    return end


def test_a_script_that_reports_steps(script_run: ScriptRun) -> None:
    script_run.write(STEPS)
    assert script_run.run("3", "0.05") == 0, script_run.output
    steps: list[Any] = script_run.events("step")
    assert [step.step for step in steps] == [1, 2, 3]
    assert steps[0].loss == 1.0
    assert all(step.tokens == 100 and step.step_time_s >= 0.05 for step in steps)
    assert _end(script_run).state == "SUCCEEDED"
    phases = [(e.name, e.state) for e in script_run.events("phase")]
    for name in ("driver", "first_step"):
        assert (name, "begin") in phases
        assert (name, "end") in phases


def test_a_script_that_reports_nothing(script_run: ScriptRun) -> None:
    script_run.write("print('hello')")
    assert script_run.run() == 0
    assert "hello" in script_run.output
    assert _end(script_run).state == "SUCCEEDED"
    assert script_run.events("step") == []


def test_ray_train_in_a_script_looks_for_ended_workers_four_times_a_second(
    script_run: ScriptRun,
) -> None:
    script_run.write(
        """
        from ray.train.v2._internal.constants import HEALTH_CHECK_INTERVAL_S_ENV_VAR as NAME
        import os

        print("every", os.environ[NAME], "s")
        """
    )
    assert script_run.run() == 0
    assert "every 0.25 s" in script_run.output


def test_an_exception_is_a_failure_with_the_users_line(script_run: ScriptRun) -> None:
    script_run.write("def load():\n    raise ValueError('no rows')\n", "parts/data.py")
    script_run.write("import sys\nfrom data import load\n\nload()\n", "parts/train.py")
    assert script_run.run(script="parts/train.py") == 1
    [failure] = script_run.events("failure")
    assert (failure.error, failure.file, failure.line) == ("ValueError", "parts/data.py", 2)
    assert _end(script_run).message == "ValueError: no rows (parts/data.py:2)"
    assert "entrypoint" not in script_run.output
    assert "program.py" not in script_run.output


def test_a_script_with_a_syntax_error(script_run: ScriptRun) -> None:
    script_run.write("x = 1\nif x\n    y = 2\n")
    assert script_run.run() == 1
    [failure] = script_run.events("failure")
    assert (failure.error, failure.file, failure.line) == ("SyntaxError", "train.py", 2)


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("import sys; sys.exit(3)", "train.py exited with status 3."),
        ("import sys; sys.exit('no data')", "train.py exited: no data"),
        ("import os; os._exit(4)", "train.py exited with status 4."),
        (
            "import os; os.kill(os.getpid(), 9)",
            "train.py was killed by signal 9, probably because memory ran out.",
        ),
        ("import os; os.abort()", "train.py was terminated by signal 6 (SIGABRT)."),
    ],
)
def test_every_other_way_to_fail_is_distinguished(
    script_run: ScriptRun, code: str, message: str
) -> None:
    script_run.write(code)
    assert script_run.run() == 1
    assert _end(script_run).message.removesuffix(" (train.py:1)") == message


def test_an_exit_with_status_0_is_success(script_run: ScriptRun) -> None:
    script_run.write("import sys; sys.exit(0)")
    assert script_run.run() == 0
    assert _end(script_run).state == "SUCCEEDED"


def _wait_for(run: ScriptRun, kind: str, number: int) -> None:
    until(lambda: len(run.events(kind)) >= number)


def test_a_stop_saves_a_checkpoint_and_a_retry_resumes_from_it(script_run: ScriptRun) -> None:
    script_run.write(STEPS)
    process = script_run.start("500", "0.05")
    _wait_for(script_run, "step", 2)
    process.send_signal(signal.SIGTERM)
    assert script_run.finish(process) == 0, script_run.output
    end = _end(script_run)
    assert end.state == "STOPPED"
    assert end.message == f"Stopped at step {end.last_step}, after saving a checkpoint."
    [kept] = script_run.events("checkpoint")
    assert Path(kept.path).is_relative_to(script_run.folder.checkpoints)
    # The workspace's own file may be gone or another run's by then.
    (script_run.workspace / "state.txt").write_text("overwritten")
    assert script_run.run(str(end.last_step + 2), "0.01") == 0
    steps: list[Any] = script_run.events("step")
    assert [step.step for step in steps] == [end.last_step + 1, end.last_step + 2]


def test_a_script_that_never_asks_is_ended_at_once(script_run: ScriptRun) -> None:
    script_run.write("import time\nprint('ready')\ntime.sleep(300)\n")
    process = script_run.start()
    _wait_for(script_run, "phase", 3)
    begin = time.monotonic()
    process.send_signal(signal.SIGTERM)
    script_run.finish(process)
    assert time.monotonic() - begin < 100  # The script sleeps for 300 s.
    end = _end(script_run)
    assert end.state == "STOPPED"
    assert "track.should_stop()" in end.message


def test_a_script_that_asks_but_stays_is_ended_before_ray_ends_the_driver(
    script_run: ScriptRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(STOP_WAIT_ENV_VAR, "30")
    script_run.write(
        """
        import time
        from llmops_kernel import track

        for step in range(1, 3000):
            time.sleep(0.1)
            track.step(loss=1.0)
            track.should_stop()
        """
    )
    process = script_run.start()
    _wait_for(script_run, "step", 2)
    begin_s = time.time()
    process.send_signal(signal.SIGTERM)
    script_run.finish(process)
    assert 19 < _end(script_run).time_s - begin_s < 30, "the end is written before Ray would kill"
    assert _end(script_run).state == "STOPPED"
    assert "still running 20 s after the request" in _end(script_run).message


def test_the_script_dies_with_its_driver(
    script_run: ScriptRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temp = tmp_path / "temp"
    temp.mkdir()
    monkeypatch.setenv("TMPDIR", str(temp))
    script_run.write(
        """
        import os, time
        open("pid.txt", "w").write(str(os.getpid()))
        time.sleep(300)
        """
    )
    process = script_run.start()
    written = script_run.workspace / "pid.txt"
    until(lambda: written.exists() and written.read_text())
    process.kill()
    script_run.finish(process)
    gone = Path(f"/proc/{written.read_text()}")
    until(lambda: not gone.exists() or ") Z " in (gone / "stat").read_text())
    # What it could not remove itself goes with the next run.
    assert {path.name[:12] for path in temp.iterdir()} - {"llmops-beats"} == {"llmops-board"}
    script_run.write("")
    assert script_run.run() == 0, script_run.output
    assert list(temp.iterdir()) == []


def test_a_rank_is_set_only_where_workers_were_asked_for(script_run: ScriptRun) -> None:
    script_run.write(
        """
        import os
        import torch.distributed as dist

        print("RANK", os.environ.get("RANK"))
        if int(os.environ.get("LOCAL_RANK", -1)) != -1:
            dist.init_process_group("nccl")
        """
    )
    assert script_run.run() == 0, script_run.output
    assert "RANK None" in script_run.output


@pytest.mark.parametrize(
    "code",
    [
        "import os; os.environ['RANK']",
        "import torch.distributed as d; d.init_process_group('gloo')",
    ],
)
def test_a_script_for_torchrun_is_told_how_it_is_started(script_run: ScriptRun, code: str) -> None:
    script_run.write(code)
    assert script_run.run() == 1
    [failure] = script_run.events("failure")
    assert "--workers 1" in failure.remedy


def test_main_is_what_python_makes_of_it(script_run: ScriptRun, tmp_path: Path) -> None:
    script_run.write(
        """
        import json, os, sys
        main = sys.modules["__main__"]
        names = ("__name__", "__spec__", "__package__", "__doc__", "__cached__")
        print("IS", json.dumps([
            {name: str(getattr(main, name)) for name in names},
            os.path.samefile(main.__file__, "parts/train.py"),
            os.path.samefile(sys.path[0], "parts"), sys.argv, sys.orig_argv[1:],
        ]))
        """,
        "parts/train.py",
    )
    assert script_run.run("--lr", "1", script="parts/train.py") == 0, script_run.output
    words = [sys.executable, "parts/train.py", "--lr", "1"]
    plain = subprocess.run(words, cwd=script_run.workspace, capture_output=True, text=True)
    [line] = [line for line in script_run.output.splitlines() if line.startswith("IS")]
    assert line == plain.stdout.strip()


def test_a_spawned_pool_returns_objects_of_the_scripts_own_class(script_run: ScriptRun) -> None:
    script_run.write(programs()["spawned pool"])
    assert script_run.run() == 0, script_run.output
    assert "[1, 4, 9]" in script_run.output


def test_exit_handlers_and_threads_run_to_their_end(script_run: ScriptRun) -> None:
    script_run.write(
        """
        import atexit, threading, time
        atexit.register(print, "exit handler")
        threading.Thread(target=lambda: (time.sleep(0.3), print("thread"))).start()
        """
    )
    assert script_run.run() == 0
    assert "thread" in script_run.output
    assert "exit handler" in script_run.output
