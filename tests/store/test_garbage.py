"""Leftovers of killed processes are found, shown and removed; what a run needs stays."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from llmops_kernel.store.files import remove_abandoned, scratch_folder
from llmops_kernel.store.garbage import PACKAGE_AGE_S, find, remove, sweep
from llmops_kernel.store.record import RunRecord
from llmops_kernel.store.store import RunStore

# A process that is killed in the middle of a deletion, at the 50th file.
KILLED_DELETE = """
import os, signal, sys
from pathlib import Path
from llmops_kernel.store.store import RunStore
store, seen = RunStore(Path(sys.argv[1])), []
def kill(event, arguments):
    if event == "os.remove":
        seen.append(arguments)
        if len(seen) == 50:
            os.kill(os.getpid(), signal.SIGKILL)
sys.addaudithook(kill)
store.delete("big")
"""
# A process with a temporary folder, which may fork one that stays.
# Each line is written at once: two processes write them, and Python's output may be unbuffered.
MAKER = """
    import os, sys, time
    from llmops_kernel.store.files import scratch_folder
    with scratch_folder("board") as folder:
        (folder / "value").write_text("1")
        if sys.argv[1] == "forks" and os.fork() == 0:
            os.setsid()
            os.write(1, b"child %d" % os.getpid() + bytes([10]))
            time.sleep(600)
        os.write(1, b"parent %s" % os.fsencode(folder) + bytes([10]))
        time.sleep(600)
"""


def add(store: RunStore, run_id: str, **fields: str) -> Path:
    record = RunRecord(run_id=run_id, name=run_id, created_s=1.0, cluster="c", config={}, **fields)
    return store.create(record, config_yaml="").root


def package(store: RunStore, name: str, *, age_s: float) -> Path:
    store.packages.mkdir(parents=True, exist_ok=True)
    path = store.packages / name
    path.write_bytes(b"x" * 10)
    os.utime(path, (time.time() - age_s,) * 2)
    return path


def test_what_a_killed_deletion_left_is_shown_and_removed(store: RunStore) -> None:
    files = add(store, "big") / "output"
    files.mkdir()
    for number in range(200):
        (files / str(number)).write_text("x" * 100)
    done = subprocess.run([sys.executable, "-c", KILLED_DELETE, str(store.root)], check=False)
    assert done.returncode == -signal.SIGKILL
    assert store.ids() == []
    (found,) = find(store)
    assert found.path.name.startswith(".deleted-big-")
    assert found.num_files >= 150
    assert found.size_bytes >= 14_000
    assert sweep(store) == [found]
    assert list((store.root / "runs").iterdir()) == []
    assert find(store) == []


def test_the_next_deletion_ends_the_one_before(store: RunStore) -> None:
    from llmops_kernel.services.backend import Backend
    from llmops_kernel.services.runs import Run

    left = store.root / "runs" / ".deleted-old-1a2b"
    left.mkdir(parents=True)
    (left / "weights").write_text("w")
    cluster = store.root / "clusters" / ".deleted-local-1a2b"
    cluster.mkdir(parents=True)
    add(store, "new")
    Run(Backend(store=store, providers=list), "new").delete()
    assert not left.exists()
    assert not cluster.exists()


def test_packages_that_no_run_was_submitted_with(store: RunStore) -> None:
    old_s = PACKAGE_AGE_S + 60
    add(store, "run", code_hash="code", assets_hash="data", package_hash="library")
    kept = [package(store, f"{name}.zip", age_s=old_s) for name in ("code", "data", "library")]
    kept += [package(store, "new.zip", age_s=60), package(store, ".new.zip.1a.tmp", age_s=60)]
    gone = [package(store, name, age_s=old_s) for name in ("other.zip", ".half.zip.1a2b.tmp")]
    assert {one.path for one in find(store)} == set(gone)
    sweep(store)
    assert sorted(store.packages.iterdir()) == sorted(kept)


def test_a_package_that_is_used_again_meanwhile_stays(store: RunStore) -> None:
    path = package(store, "again.zip", age_s=PACKAGE_AGE_S + 60)
    (found,) = find(store)
    os.utime(path)
    assert not remove(found)
    assert path.exists()


def test_no_package_is_removed_while_a_record_cannot_be_read(store: RunStore) -> None:
    (add(store, "broken") / "record.json").write_text("{")
    package(store, "unknown.zip", age_s=PACKAGE_AGE_S + 60)
    assert find(store) == []


@pytest.mark.parametrize(("result", "is_garbage"), [(None, True), ("output", False)])
def test_a_submission_that_was_killed(
    store: RunStore, result: str | None, is_garbage: bool
) -> None:
    folder = add(store, "half")
    (folder / "record.json").unlink()
    if result:
        (folder / result).mkdir()
    assert find(store) == []
    assert bool(find(store, now_s=time.time() + 2 * 86400)) is is_garbage


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
        process.wait()
        if process.stdout is not None:
            process.stdout.close()  # Its end would come with that of a process that it forked.


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
    deadline_s = time.monotonic() + 60
    while folder.exists():
        assert time.monotonic() < deadline_s
        remove_abandoned("board")
        time.sleep(0.01)


def test_nothing_else_is_removed(temp: Path) -> None:
    (temp / "board").mkdir()
    (temp / "boards-a").mkdir()
    (temp / "board-results").mkdir()
    (temp / "board-results" / "of-a-month").write_text("a user's")
    (temp / "board-file").write_text("a file")
    (temp / "elsewhere").mkdir()
    (temp / "board-link").symlink_to(temp / "elsewhere")
    before = sorted(temp.iterdir())
    with scratch_folder("board"):
        pass
    assert sorted(temp.iterdir()) == before
    assert (temp / "board-results" / "of-a-month").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes folders of other users")
def test_a_folder_of_another_user_stays(temp: Path) -> None:
    theirs = temp / "board-theirs"
    theirs.mkdir()
    (theirs / ".llmops-scratch").touch()
    os.chown(theirs, 64101, 64101)
    remove_abandoned("board")
    assert theirs.exists()
