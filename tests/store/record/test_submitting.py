"""A run is being submitted as long as a process says so with a lock."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from llmops_kernel.store.store import forget_abandoned, submitting, was_abandoned

HOLD = """
import sys, time
from pathlib import Path
from llmops_kernel.store.store import submitting
with submitting(Path(sys.argv[1]), "run-1"):
    print("held", flush=True)
    time.sleep(600)
"""


def killed_client(home: Path) -> None:
    """A process that begins to submit `run-1` and is killed."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(home)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        assert not was_abandoned(home, "run-1")
        process.send_signal(signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL


def test_a_killed_client_is_known_at_once(tmp_path: Path) -> None:
    home = tmp_path / "home"
    assert not was_abandoned(home, "run-1")
    killed_client(home)
    assert was_abandoned(home, "run-1")
    assert not was_abandoned(home, "run-2")
    assert (home.stat().st_mode | (home / "submitting").stat().st_mode) & 0o077 == 0
    forget_abandoned(home)
    assert list((home / "submitting").iterdir()) == []


def test_a_file_of_another_host_says_nothing(tmp_path: Path) -> None:
    """Locks of a home that two hosts mount may not be seen by the other one."""
    home = tmp_path / "home"
    killed_client(home)
    (home / "submitting" / "run-1").write_text("elsewhere")
    assert not was_abandoned(home, "run-1")


def test_nothing_is_left_by_a_submission_that_ended(tmp_path: Path) -> None:
    with submitting(tmp_path, "run-1"), submitting(tmp_path, "run-2"):
        assert not was_abandoned(tmp_path, "run-1")
        forget_abandoned(tmp_path)
        assert len(list((tmp_path / "submitting").iterdir())) == 2
    assert list((tmp_path / "submitting").iterdir()) == []


def test_a_home_that_takes_no_file_does_not_prevent_a_submission(tmp_path: Path) -> None:
    (tmp_path / "submitting").write_text("in the way")
    with submitting(tmp_path, "run-1"):
        assert not was_abandoned(tmp_path, "run-1")
