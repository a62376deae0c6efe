"""Copies of a script's checkpoints on a node's disk, in a shared folder and in a bucket."""

from __future__ import annotations

from pathlib import Path

import pytest

from llmops_kernel.errors import StoreError
from llmops_kernel.store.paths import RUN_STORAGE_ENV_VAR
from llmops_kernel.store.record.spec import RunSpec
from llmops_kernel.train.script.copies import CheckpointCopies


def node(root: Path, name: str) -> CheckpointCopies:
    """Return the copies as a node sees them whose Ray session has that name."""
    workspace = root / name / "runtime_resources" / "working_dir_files" / "_ray_pkg_1"
    spec = RunSpec(
        run_id=f"run-{root.name}", attempt=1, config={}, run_root=str(root), submitted_s=1.0
    )
    return CheckpointCopies(spec, workspace=workspace)


def sharded(root: Path) -> Path:
    """Write a checkpoint as torch's distributed checkpoints are: with a hidden file."""
    folder = root / "state"
    (folder / "parts").mkdir(parents=True)
    (folder / ".metadata").write_text("where each part is")
    (folder / "parts" / "0.distcp").write_text("weights")
    return folder


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_another_node_finds_the_newest_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scheme: str
) -> None:
    monkeypatch.setenv(RUN_STORAGE_ENV_VAR, f"{scheme}{tmp_path}/storage")
    first = node(tmp_path, "a")
    file = tmp_path / "state.pt"
    for step in (1, 2, 3):
        file.write_text(f"state of step {step}")
        event = first.keep(file, step=step, keep=2)
    assert event.path.startswith(f"{scheme}{tmp_path}/storage/run-")
    assert event.path.endswith("/checkpoints/checkpoint-3")
    stored = Path(event.path.removeprefix(scheme)).parent
    assert {path.name for path in stored.iterdir() if path.name != ".lock"} == {
        "checkpoint-2",
        "checkpoint-3",
    }
    newest = node(tmp_path, "b").newest()
    assert newest is not None
    assert (newest.path.name, newest.step) == ("state.pt", 3)
    assert newest.path.read_text() == "state of step 3"
    first.keep(sharded(tmp_path), step=4, keep=2)
    newest = node(tmp_path, "b").newest()
    assert newest is not None
    assert (newest.path / ".metadata").read_text() == "where each part is"
    assert (newest.path / "parts" / "0.distcp").read_text() == "weights"


def test_a_bucket_decides_and_not_the_nodes_own_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(RUN_STORAGE_ENV_VAR, f"file://{tmp_path}/storage")
    one = node(tmp_path, "a")
    assert one.newest() is None
    file = tmp_path / "state.pt"
    file.write_text("stored")
    one.keep(file, step=1, keep=2)
    # The bucket is away while the next one is written: the disk has it, the bucket does not.
    (tmp_path / "storage").rename(tmp_path / "away")
    (tmp_path / "storage").write_text("not a folder")
    file.write_text("never stored")
    with pytest.raises(StoreError, match="checkpoint-2"):
        one.keep(file, step=2, keep=2)
    (tmp_path / "storage").unlink()
    (tmp_path / "away").rename(tmp_path / "storage")
    newest = one.newest()
    assert newest is not None
    assert newest.path.read_text() == "stored"
