"""A run kept in a bucket: nodes that share nothing, and others that go on from it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import pytest

from llmops_kernel.driver import checkpoint
from llmops_kernel.driver.storage import Bucket, open_bucket, storage_folder
from llmops_kernel.errors import StoreError
from llmops_kernel.metrics.events import CheckpointEvent, StartEvent, StepEvent, WarningEvent
from llmops_kernel.store.journal.journal import FolderTail, read_lines
from llmops_kernel.store.paths import RUN_STORAGE_ENV_VAR
from llmops_kernel.train.checkpoints import store as keeping
from llmops_kernel.train.checkpoints.resume import resume_path
from llmops_kernel.train.context import WorkerContext
from tests.train.strategy_pairs import compiled_ops, free_port

Train = Callable[..., list[Any]]


@pytest.fixture
def bucket(tmp_path: Path) -> Bucket:
    return Bucket(f"file://{tmp_path}/bucket/run-1")


def write(folder: Path, step: int, **files: str) -> Path:
    path = folder / f"checkpoint-{step}"
    path.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (path / name).write_text(text)
    return path


def context(folder: Path, bucket: Bucket | None) -> WorkerContext:
    return WorkerContext(run_id="run-1", folder=folder, workspace=folder, bucket=bucket)


def test_only_what_is_whole_is_resumed_from(tmp_path: Path, bucket: Bucket) -> None:
    first = context(tmp_path / "a", bucket)
    checkpoints = first.folder / "checkpoints"
    keeping.complete_checkpoint(first, write(checkpoints, 2, weights="two"), step=2, num_kept=2)
    # Sent by one node, never completed by all.
    bucket.put(write(checkpoints, 4, weights="four"), "checkpoints/checkpoint-4")
    elsewhere = context(tmp_path / "b", bucket)
    path = resume_path(elsewhere)
    assert path == tmp_path / "b" / "checkpoints" / "checkpoint-2"
    assert (path / "weights").read_text() == "two"


def test_a_node_trusts_its_own_disk_only_for_the_same_writing(
    tmp_path: Path, bucket: Bucket
) -> None:
    one, other = context(tmp_path / "a", bucket), context(tmp_path / "b", bucket)
    stale = write(other.folder / "checkpoints", 2, weights="old", leftover="x")
    checkpoint.mark_complete(stale, token="another time")
    write(other.folder / "checkpoints", 9, weights="never stored")
    keeping.complete_checkpoint(
        one, write(one.folder / "checkpoints", 2, weights="new"), step=2, num_kept=1
    )
    path = resume_path(other)
    assert path == stale
    assert {file.name: file.read_text() for file in path.iterdir() if file.name == "weights"} == {
        "weights": "new"
    }
    assert not (path / "leftover").exists()
    assert not (other.folder / "checkpoints" / "checkpoint-9").exists()
    # What is of the same writing is not fetched again, unless this disk has damaged it.
    fetched = (path / "weights").stat().st_ino
    assert resume_path(other) == path
    assert (path / "weights").stat().st_ino == fetched
    (path / "weights").write_text("ne")
    assert resume_path(other) == path
    assert (path / "weights").read_text() == "new"


def test_a_damaged_checkpoint_in_the_bucket_is_not_resumed_from(
    tmp_path: Path, bucket: Bucket
) -> None:
    here = context(tmp_path / "a", bucket)
    for step in (1, 2):
        path = write(here.folder / "checkpoints", step, weights=f"weights of {step}")
        keeping.complete_checkpoint(here, path, step=step, num_kept=2)
    stored = tmp_path / "bucket" / "run-1" / "checkpoints" / "checkpoint-2" / "weights"
    stored.write_text("weights")
    elsewhere = context(tmp_path / "b", bucket)
    path = resume_path(elsewhere)
    assert path == tmp_path / "b" / "checkpoints" / "checkpoint-1"
    assert (path / "weights").read_text() == "weights of 1"
    assert [one.step for one in bucket.complete()] == [1]
    # Same size, other content: only the hash shows it.
    (stored.parent.parent / "checkpoint-1" / "weights").write_text("Weights of 1")
    assert resume_path(context(tmp_path / "c", bucket)) is None


def test_a_checkpoint_in_a_bucket_without_a_manifest_is_used_as_before(
    tmp_path: Path, bucket: Bucket
) -> None:
    bucket.put(write(tmp_path, 7, weights="seven"), "checkpoints/checkpoint-7")
    bucket.mark_complete("checkpoints/checkpoint-7", token="of an earlier version")
    path = resume_path(context(tmp_path / "b", bucket))
    assert path is not None
    assert (path / "weights").read_text() == "seven"


def test_old_checkpoints_go_and_the_newest_stay(tmp_path: Path, bucket: Bucket) -> None:
    here = context(tmp_path / "a", bucket)
    for step in (1, 2, 3):
        path = write(here.folder / "checkpoints", step, weights=str(step))
        reported = keeping.complete_checkpoint(here, path, step=step, num_kept=2)
        assert isinstance(reported, CheckpointEvent)
        assert reported.path == f"{bucket.url}/checkpoints/checkpoint-{step}"
        assert reported.size_bytes == 1
    assert [stored.step for stored in bucket.complete()] == [2, 3]
    assert not (tmp_path / "bucket" / "run-1" / "checkpoints" / "checkpoint-1").exists()
    local = {path.name for path in (here.folder / "checkpoints").iterdir()}
    assert local == {"checkpoint-2", "checkpoint-3"}


def test_a_bucket_that_refuses_is_reported_and_the_training_goes_on(tmp_path: Path) -> None:
    (tmp_path / "bucket").write_text("a file where a folder should be")
    closed = Bucket(f"file://{tmp_path}/bucket/run-1")
    here = context(tmp_path / "a", closed)
    path = write(here.folder / "checkpoints", 2, weights="two")
    reported = keeping.complete_checkpoint(here, path, step=2, num_kept=1)
    assert isinstance(reported, WarningEvent)
    assert "checkpoint of step 2" in reported.message
    assert "storage.runs" not in reported.message
    assert checkpoint.latest(here.folder / "checkpoints") is None


def test_a_kind_of_bucket_that_is_not_installed_is_named() -> None:
    with pytest.raises(StoreError, match=r"runs|kept at") as caught:
        Bucket("nosuchkind://bucket/run-1")
    assert "storage.runs" in caught.value.remedy


def test_memory_is_a_bucket_too() -> None:
    kept = Bucket("memory://team/run-7")
    kept.mark_complete("checkpoints/checkpoint-5", token="t")
    newest = kept.newest()
    assert newest is not None
    assert (newest.step, newest.token) == (5, "t")
    fsspec.filesystem("memory").rm("/team", recursive=True)
    assert kept.newest() is None


def test_the_setting_says_folder_or_bucket(monkeypatch: pytest.MonkeyPatch) -> None:
    for setting, folder, is_bucket in (
        ("", None, False),
        ("/mnt/team/llmops/", Path("/mnt/team/llmops/r"), False),
        ("memory://team", None, True),
    ):
        monkeypatch.setenv(RUN_STORAGE_ENV_VAR, setting)
        assert storage_folder("r") == folder
        assert (open_bucket("r") is not None) is is_bucket


@pytest.fixture
def train_apart(tmp_path: Path, workspace: Path) -> Train:
    """Two workers, each on a node of its own; returns the journal of rank 0."""

    def train(config: Any, name: str) -> list[Any]:
        folder = tmp_path / name
        spec = {
            "config": config.model_dump(mode="json"),
            "folder": str(folder),
            "workspace": str(workspace),
            "apart": True,
        }
        command = [sys.executable, "-m", "tests.train.strategy_worker", json.dumps(spec)]
        shared = {
            RUN_STORAGE_ENV_VAR: f"file://{tmp_path}/bucket",
            "WORLD_SIZE": "2",
            "LOCAL_WORLD_SIZE": "1",
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(free_port()),
            "OMP_NUM_THREADS": "1",
            **compiled_ops(),
        }
        folder.mkdir()
        workers = []
        for rank in range(2):
            with (folder / f"{rank}.log").open("w") as log:
                env = {**os.environ, **shared, "RANK": str(rank), "LOCAL_RANK": "0"}
                workers.append(subprocess.Popen(command, env=env, stdout=log, stderr=log))
        try:
            codes = [worker.wait(timeout=400) for worker in workers]
        finally:
            for worker in workers:
                worker.kill()
        logs = "\n".join((folder / f"{rank}.log").read_text()[-2500:] for rank in range(2))
        assert codes == [0, 0], logs
        return FolderTail(folder / "node-0" / "journal").read()

    return train


def losses(events: list[Any]) -> dict[int, float | None]:
    return {event.step: event.loss for event in events if isinstance(event, StepEvent)}


@pytest.mark.slow
@pytest.mark.beside
@pytest.mark.timeout(900)
@pytest.mark.parametrize("strategy", [pytest.param("zero2", marks=pytest.mark.nightly), "zero3"])
def test_other_nodes_go_on_where_the_first_ones_ended(
    train_apart: Train, make_config: Callable[..., Any], tmp_path: Path, strategy: str
) -> None:
    config = make_config(
        parallelism={"strategy": strategy, "num_workers": 2},
        training={"max_steps": 4},
        checkpoint={"every_steps": 3},
    )
    first = train_apart(config, "first")
    saved = next(event for event in first if isinstance(event, CheckpointEvent))
    assert saved.path == f"file://{tmp_path}/bucket/strategies/checkpoints/checkpoint-3"
    stored = tmp_path / "bucket" / "strategies"
    shards = {path.name for path in stored.rglob("*optim_states.pt")}
    assert len(shards) == 2, "each node sends its own shard"
    for rank in range(2):
        own = {
            path.name for path in (tmp_path / "first" / f"node-{rank}").rglob("*optim_states.pt")
        }
        assert len(own) == 1
    (output,) = [event for event in first if event.kind == "output"]
    assert output.path == f"file://{stored}/output"
    assert (stored / "output" / "config.train.yaml").exists()
    (journal,) = (stored / "journal").glob("*.jsonl")
    assert losses(read_lines(journal.read_bytes())) == losses(first)

    second = train_apart(config, "second")
    start = next(event for event in second if isinstance(event, StartEvent))
    assert start.first_step == 4
    assert losses(second) == pytest.approx({4: losses(first)[4]}, rel=1e-5)
