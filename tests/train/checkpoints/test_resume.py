"""Ranks resume from one checkpoint, and never from a damaged one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from llmops_kernel.driver import checkpoint
from llmops_kernel.driver.checkpoint import HashesLater
from llmops_kernel.store.journal.journal import FolderTail, JournalWriter
from llmops_kernel.train.checkpoints.resume import resume_path
from llmops_kernel.train.checkpoints.store import complete_checkpoint, wait_for_hashes
from llmops_kernel.train.context import WorkerContext
from tests.messages import missing
from tests.train.strategy_pairs import free_port


def save(folder: Path, step: int, *, is_hashed: bool = True) -> Path:
    path = folder / "checkpoints" / f"checkpoint-{step}"
    (path / "shards").mkdir(parents=True)
    (path / "weights").write_bytes(bytes([step]) * 5000)
    (path / "shards" / ".metadata").write_bytes(b"where each shard is")
    checkpoint.mark_complete(path)
    if is_hashed:
        later = HashesLater()
        later.add(path)
        later.wait(limit_s=60)
    return path


def context(folder: Path) -> WorkerContext:
    journal = JournalWriter([folder / "journal"], stream="1-worker-1", attempt=1)
    return WorkerContext(run_id="r", folder=folder, workspace=folder, journal=journal)


def warnings(folder: Path) -> list[str]:
    events = FolderTail(folder / "journal").read()
    return [event.message for event in events if event.kind == "warning"]


def two_ranks(first: Path, second: Path, *, view_s: float) -> list[dict[str, Any]]:
    """Resume with two processes, each with its own view of the run's folder."""
    shared = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    ranks = []
    for rank, folder in enumerate((first, second)):
        command = [sys.executable, "-m", "tests.train.checkpoints.resume_worker", str(folder)]
        env = {**os.environ, **shared, "RANK": str(rank), "OMP_NUM_THREADS": "1"}
        ranks.append(
            subprocess.Popen([*command, str(view_s)], env=env, stdout=subprocess.PIPE, text=True)
        )
    try:
        return [json.loads(rank.communicate(timeout=240)[0].splitlines()[-1]) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()


@pytest.mark.timeout(300)
def test_a_rank_with_a_stale_view_stops_the_run_instead_of_resuming_from_another_step(
    tmp_path: Path,
) -> None:
    for step in (10, 20):
        save(tmp_path / "new", step)
    save(tmp_path / "stale", 10)
    answers = two_ranks(tmp_path / "new", tmp_path / "stale", view_s=0)
    for answer in answers:
        assert "rank 0 found checkpoint-20" in answer["error"]
        assert "rank 1 sees something else there (has no complete checkpoint-20)" in answer["error"]


@pytest.mark.timeout(300)
def test_ranks_wait_for_a_view_that_is_behind_and_check_hashes_together(tmp_path: Path) -> None:
    for name in ("a", "b"):
        save(tmp_path / name, 10)
        path = save(tmp_path / name, 20)
        (path / "weights").write_bytes(b"x" * 5000)
    # Only rank 1 has this one; rank 0's choice counts.
    save(tmp_path / "b", 30)
    late = tmp_path / "b" / "checkpoints" / "checkpoint-10"
    late.rename(tmp_path / "late")
    timer = threading.Timer(4, lambda: (tmp_path / "late").rename(late))
    timer.start()
    try:
        # 20 has the right sizes and another content.
        answers = two_ranks(tmp_path / "a", tmp_path / "b", view_s=120)
    finally:
        timer.join()
    assert answers == [{"path": "checkpoint-10"}] * 2


@pytest.mark.parametrize("size", [0, 1, 4096, 4999])
@pytest.mark.parametrize("is_hashed", [True, False])
def test_a_truncated_checkpoint_is_never_resumed_from(
    tmp_path: Path, size: int, is_hashed: bool
) -> None:
    good = save(tmp_path, 10)
    broken = save(tmp_path, 20, is_hashed=is_hashed)
    os.truncate(broken / "weights", size)
    assert resume_path(context(tmp_path)) == good
    (warning,) = warnings(tmp_path)
    assert missing(warning, "checkpoint-20", "weights", f"{size:,} of 5,000") == []
    # The next writing of step 20 cannot be taken for complete before it is.
    assert not (broken / checkpoint.MARKER).exists()
    os.truncate(good / "shards" / ".metadata", 3)
    assert resume_path(context(tmp_path)) is None


def test_a_file_that_is_missing_or_differs_is_noticed(tmp_path: Path) -> None:
    save(tmp_path, 10)
    (save(tmp_path, 20) / "weights").write_bytes(b"y" * 5000)
    (save(tmp_path, 30) / "shards" / ".metadata").unlink()
    (save(tmp_path, 40) / checkpoint.MANIFEST).write_text('{"vers')
    path = resume_path(context(tmp_path))
    assert path is not None
    assert path.name == "checkpoint-10"
    said = warnings(tmp_path)
    assert [text.partition(" ")[0] for text in said] == [
        "checkpoint-40",
        "checkpoint-30",
        "checkpoint-20",
    ]
    assert "SHA-256" in said[2]


def test_a_checkpoint_of_an_earlier_version_is_used_as_before(tmp_path: Path) -> None:
    path = tmp_path / "checkpoints" / "checkpoint-3"
    path.mkdir(parents=True)
    (path / "weights").write_text("w")
    (path / checkpoint.MARKER).write_text("all workers have written their part\n")
    assert resume_path(context(tmp_path)) == path


def test_hashes_are_written_beside_the_training(tmp_path: Path) -> None:
    here = context(tmp_path)
    for step in (1, 2, 3):
        path = tmp_path / "checkpoints" / f"checkpoint-{step}"
        path.mkdir(parents=True)
        (path / "weights").write_bytes(os.urandom(100_000))
        complete_checkpoint(here, path, step=step, num_kept=2)
        assert checkpoint.latest(path.parent) is not None
    wait_for_hashes()
    kept = sorted(one.path.name for one in checkpoint.complete(tmp_path / "checkpoints"))
    assert kept == ["checkpoint-2", "checkpoint-3"]
    files = checkpoint.read(tmp_path / "checkpoints" / "checkpoint-3")
    assert files is not None
    assert files["weights"].sha256 == checkpoint.sha256(path / "weights")


def test_files_and_folders_are_synced_before_the_marker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "checkpoints" / "checkpoint-1"
    (path / "shards").mkdir(parents=True)
    (path / "weights").write_text("w")
    (path / "shards" / "0").write_text("s")
    synced: list[tuple[str, bool]] = []
    fsync = os.fsync

    def noted(fd: int) -> None:
        fsync(fd)
        name = Path(os.readlink(f"/proc/self/fd/{fd}")).name
        synced.append((name, (path / checkpoint.MARKER).exists()))

    monkeypatch.setattr(os, "fsync", noted)
    checkpoint.mark_complete(path)
    before = {name for name, is_marked in synced if not is_marked}
    draft = f".{checkpoint.MANIFEST}"
    assert {"weights", "0", "shards", "checkpoint-1", "checkpoints", draft} <= before
    assert [name for name, is_marked in synced if is_marked] == ["checkpoint-1"]
