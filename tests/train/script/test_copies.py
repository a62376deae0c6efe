"""Copies of a script's checkpoints on a node's disk, in a shared folder and in a bucket."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from llmops_kernel.errors import StoreError
from llmops_kernel.store.paths import RUN_STORAGE_ENV_VAR
from llmops_kernel.store.record import RunSpec
from llmops_kernel.track.stopping import FileBoard
from llmops_kernel.train.checkpoints.agreement import ResumeAgreement
from llmops_kernel.train.script.tracking import CheckpointCopies


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


def ranks(tmp_path: Path, views: tuple[Path, ...], *, view_s: float) -> list[str]:
    """Let each rank ask for the checkpoint, the last one first, each with its own view."""
    board = FileBoard(tmp_path / "board")
    board.folder.mkdir(exist_ok=True)
    asks = [
        ResumeAgreement(board, node(root, "n"), rank=rank, group=views[0].name, view_s=view_s)
        for rank, root in enumerate(views)
    ]

    def ask(rank: int) -> str:
        try:
            found = asks[rank].newest()
        except StoreError as error:
            return str(error)
        return "" if found is None else f"{found.step}: {found.path.read_text()}"

    with ThreadPoolExecutor(len(views)) as pool:
        answers = [pool.submit(ask, rank) for rank in reversed(range(len(views)))]
        return [answer.result(timeout=60) for answer in reversed(answers)]


def saved(tmp_path: Path, name: str, steps: tuple[int, ...]) -> Path:
    """Return what one node sees of the run's folder when it knows these checkpoints."""
    root, file = tmp_path / name / "run", tmp_path / "state.pt"
    root.mkdir(parents=True)
    (root / "record.json").write_text(json.dumps({"run_id": f"run-{root.name}"}))
    for step in steps:
        file.write_text(f"state of step {step}")
        node(root, "n").keep(file, step=step, keep=5)
    return root


def test_a_worker_with_a_stale_view_stops_the_run_instead_of_resuming_from_another_step(
    tmp_path: Path,
) -> None:
    new, stale = saved(tmp_path, "new", (10, 20)), saved(tmp_path, "stale", (10,))
    first, second = ranks(tmp_path, (new, stale), view_s=0)
    assert first == "20: state of step 20"
    assert "rank 0 found checkpoint-20" in second
    assert "rank 1 sees something else there (has no complete checkpoint-20)" in second
    assert "storage.runs must be one folder" in second


def test_rank_0_chooses_for_the_workers_of_a_script(tmp_path: Path) -> None:
    one, two = saved(tmp_path, "one", (10,)), saved(tmp_path, "two", (10, 20))
    assert ranks(tmp_path, (one, two), view_s=0) == ["10: state of step 10"] * 2


def test_a_worker_waits_for_a_view_that_is_behind(tmp_path: Path) -> None:
    one, two = saved(tmp_path, "a", (10, 20)), saved(tmp_path, "b", (10, 20))
    [late] = two.rglob("checkpoint-20")
    late.rename(tmp_path / "late")
    timer = threading.Timer(1, lambda: (tmp_path / "late").rename(late))
    timer.start()
    try:
        assert ranks(tmp_path, (one, two), view_s=50) == ["20: state of step 20"] * 2
    finally:
        timer.join()


def test_rank_0s_choice_of_none_counts(tmp_path: Path) -> None:
    none, some = saved(tmp_path, "none", ()), saved(tmp_path, "some", (10,))
    assert ranks(tmp_path, (none, some), view_s=0) == ["", ""]


def test_a_worker_gets_rank_0s_checkpoint_also_after_a_newer_one_was_kept(tmp_path: Path) -> None:
    root = saved(tmp_path, "one", (10,))
    board = FileBoard(tmp_path)
    first = ResumeAgreement(board, node(root, "n"), rank=0, group="g")
    assert first.newest() is not None
    file = tmp_path / "state.pt"
    node(root, "n").keep(file, step=30, keep=5)
    found = ResumeAgreement(board, node(root, "n"), rank=1, group="g").newest()
    assert found is not None
    assert found.step == 10
    later = ResumeAgreement(board, node(root, "n"), rank=0, group="restarted").newest()
    assert later is not None
    assert later.step == 30


def test_the_workers_fetch_one_checkpoint_from_a_bucket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(RUN_STORAGE_ENV_VAR, f"file://{tmp_path}/storage")
    one = node(tmp_path, "a")
    file = tmp_path / "state.pt"
    for step in (1, 2):
        file.write_text(f"state of step {step}")
        one.keep(file, step=step, keep=2)
    chosen = one.choose()
    assert chosen is not None
    taken = node(tmp_path, "b").take(chosen, rank=1, view_s=0)
    assert (taken.step, taken.path.read_text()) == (2, "state of step 2")
    other = replace(chosen, token="of another writing")
    with pytest.raises(StoreError, match="rank 1 cannot fetch"):
        node(tmp_path, "b").take(other, rank=1, view_s=0)


def test_a_worker_does_not_wait_for_ever_for_rank_0(tmp_path: Path) -> None:
    agreement = ResumeAgreement(
        FileBoard(tmp_path), node(tmp_path, "a"), rank=1, group="g", begin_s=0.05
    )
    with pytest.raises(StoreError, match="Rank 0 did not call"):
        agreement.newest()
