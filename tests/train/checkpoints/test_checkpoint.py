"""A checkpoint counts only once it is whole."""

from __future__ import annotations

from pathlib import Path

from llmops_kernel.driver import checkpoint


def make(folder: Path, step: int, *, whole: bool = True) -> Path:
    path = folder / f"checkpoint-{step}"
    path.mkdir(parents=True)
    (path / "weights").write_bytes(b"x" * 10)
    if whole:
        checkpoint.mark_complete(path)
    return path


def test_the_newest_whole_one_is_resumed_from(tmp_path: Path) -> None:
    for step in (9, 10, 100):
        make(tmp_path, step)
    make(tmp_path, 200, whole=False)
    found = checkpoint.latest(tmp_path)
    assert found is not None
    assert found.step == 100


def test_none_in_an_absent_folder(tmp_path: Path) -> None:
    assert checkpoint.latest(tmp_path / "nothing") is None


def test_rotation_keeps_the_newest_and_clears_what_was_cut_off_before_them(tmp_path: Path) -> None:
    for step in (1, 2, 4, 5):
        make(tmp_path, step)
    make(tmp_path, 3, whole=False)
    make(tmp_path, 6, whole=False)  # being written now, perhaps
    checkpoint.rotate(tmp_path, keep=2)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "checkpoint-4",
        "checkpoint-5",
        "checkpoint-6",
    ]
    assert checkpoint.size_bytes(tmp_path / "checkpoint-5") > 10
