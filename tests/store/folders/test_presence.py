from __future__ import annotations

import os

import pytest

from llmops_kernel.store.index import RunFolders


@pytest.fixture
def root(tmp_path):
    return tmp_path / "runs"


def folders(root, *, now_s: float = 1e12) -> RunFolders:
    return RunFolders(root, is_id=lambda name: not name.startswith("."), clock=lambda: now_s)


def add(root, name: str, *, record: bool = True) -> None:
    (root / name).mkdir(parents=True)
    if record:
        (root / name / "record.json").write_text("{}")


def test_folders_come_and_go(root):
    found = folders(root)
    assert found.names() == frozenset()
    add(root, "a")
    add(root, ".deleted-b")
    assert found.names() == {"a"}
    (root / "a").rename(root / ".deleted-a")
    assert found.names() == frozenset()


def test_a_record_that_is_written_after_its_folder_was_seen_is_found(root):
    found = folders(root)
    add(root, "a", record=False)
    assert found.names() == frozenset()
    (root / "a" / "record.json").write_text("{}")
    assert found.names() == {"a"}


def test_a_folder_that_appears_in_the_same_tick_as_the_look_is_found(root):
    """The times of change of a file system are coarse: two changes may have the same."""
    add(root, "a")
    changed_ns = root.stat().st_mtime_ns
    found = folders(root, now_s=changed_ns / 1e9)
    assert found.names() == {"a"}
    add(root, "b")
    os.utime(root, ns=(changed_ns, changed_ns))
    assert found.names() == {"a", "b"}
