"""Temporary folders of processes that are killed: the next one removes them, and no others."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from llmops_kernel.store.scratch import remove_abandoned, scratch_folder

MAKER = """
    import os, sys, time
    from llmops_kernel.store.scratch import scratch_folder
    with scratch_folder("board") as folder:
        (folder / "value").write_text("1")
        if sys.argv[1] == "forks" and os.fork() == 0:
            os.setsid()
            print("child", os.getpid(), flush=True)
            time.sleep(600)
        print("parent", folder, flush=True)
        time.sleep(600)
"""


@pytest.fixture
def temp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


@pytest.fixture
def makers(temp: Path) -> Iterator[list[subprocess.Popen[str]]]:
    """Processes to be ended with the test."""
    started: list[subprocess.Popen[str]] = []
    yield started
    for process in started:
        process.kill()
        process.communicate()


def start(makers: list[subprocess.Popen[str]], temp: Path, *words: str) -> subprocess.Popen[str]:
    makers.append(
        subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(MAKER), *words],
            env=os.environ | {"TMPDIR": str(temp)},
            stdout=subprocess.PIPE,
            text=True,
        )
    )
    return makers[-1]


def said(process: subprocess.Popen[str], lines: int) -> dict[str, str]:
    assert process.stdout is not None
    words = [process.stdout.readline().split() for _ in range(lines)]
    return {name: value for name, value in words}


def test_the_folder_of_a_killed_process_goes_at_the_end_of_the_next(
    temp: Path, makers: list[subprocess.Popen[str]]
) -> None:
    killed, living = (start(makers, temp, "alone") for _ in range(2))
    left, kept = (Path(said(one, 1)["parent"]) for one in (killed, living))
    killed.kill()
    killed.wait()
    assert (left / "value").exists()
    with scratch_folder("board") as own:
        assert own.stat().st_mode & 0o777 == 0o700
        assert left.exists()
    assert not left.exists()
    assert not own.exists()
    assert (kept / "value").exists()


def test_a_folder_stays_while_a_forked_process_may_use_it(
    temp: Path, makers: list[subprocess.Popen[str]]
) -> None:
    maker = start(makers, temp, "forks")
    seen = said(maker, 2)
    maker.kill()
    maker.wait()
    folder, child = Path(seen["parent"]), int(seen["child"])
    remove_abandoned("board")
    assert (folder / "value").exists()
    os.kill(child, signal.SIGKILL)
    assert maker.stdout is not None
    assert maker.stdout.read() == ""  # It has ended: the pipe is closed.
    remove_abandoned("board")
    assert not folder.exists()


def test_nothing_else_is_removed(temp: Path) -> None:
    (temp / "board").mkdir()
    (temp / "boards-a").mkdir()
    (temp / "board-file").write_text("a file")
    (temp / "elsewhere").mkdir()
    (temp / "board-link").symlink_to(temp / "elsewhere")
    before = sorted(temp.iterdir())
    with scratch_folder("board"):
        pass
    assert sorted(temp.iterdir()) == before


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes folders of other users")
def test_a_folder_of_another_user_stays(temp: Path) -> None:
    theirs = temp / "board-theirs"
    theirs.mkdir()
    os.chown(theirs, 64101, 64101)
    remove_abandoned("board")
    assert theirs.exists()
