"""What a node keeps: within its limit, of this user alone, whole or not at all."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from llmops_kernel.store.kept_models import KeptModel, KeptModels

MIB = 2**20


def about(model: str = "m", *, num_bytes: int = MIB) -> KeptModel:
    return KeptModel(model=model, dtype="float32", user="ann", num_bytes=num_bytes)


def keep(store: KeptModels, name: str, stamp: str = "s", *, num_bytes: int = MIB) -> str:
    return store.add(
        name, stamp, about(name, num_bytes=num_bytes), lambda path: fill(path, num_bytes)
    )


def fill(path: Path, num_bytes: int) -> None:
    path.write_bytes(b"x" * num_bytes)


def files(store: KeptModels) -> list[str]:
    return sorted(path.name for path in store.folder.iterdir())


def test_a_model_is_found_by_its_name_and_stamp(tmp_path):
    store = KeptModels(tmp_path, limit_bytes=10 * MIB)
    assert keep(store, "a", "1") == ""
    assert store.find("a", "1") is not None
    assert store.find("a", "2") is store.find("b", "1") is None
    assert store.has_other("a", "2")
    assert not store.has_other("a", "1")
    [found] = store.all()
    assert (found.model, found.dtype, found.user, found.num_bytes) == ("a", "float32", "ann", MIB)
    assert found.used_s == pytest.approx(time.time(), abs=60)


def test_another_stamp_of_the_same_name_replaces_it(tmp_path):
    store = KeptModels(tmp_path, limit_bytes=10 * MIB)
    keep(store, "a", "1")
    keep(store, "a", "2")
    assert store.find("a", "1") is None
    assert files(store) == ["a.2.json", "a.2.pt"]


def test_the_least_recently_used_goes_first(tmp_path):
    store = KeptModels(tmp_path, limit_bytes=3 * MIB)
    for number, name in enumerate("abc"):
        keep(store, name)
        os.utime(store.find(name, "s"), (number, number))
    store.find("a", "s")  # Used again, so that `b` is the oldest.
    keep(store, "d")
    assert [each.model for each in store.all()] == ["d", "a", "c"]


def test_one_that_is_larger_than_the_limit_removes_nothing(tmp_path):
    store = KeptModels(tmp_path, limit_bytes=3 * MIB)
    keep(store, "a")
    assert "warm.keep" in keep(store, "b", num_bytes=4 * MIB)
    assert [each.model for each in store.all()] == ["a"]


def test_nothing_is_kept_where_it_would_fill_the_disk(tmp_path):
    store = KeptModels(tmp_path, limit_bytes=1 << 60)
    why = store.add("a", "s", about(num_bytes=1 << 59), lambda path: fill(path, 1))
    assert "GiB are free on the disk" in why
    assert files(store) == []


def test_a_failed_write_leaves_nothing(tmp_path):
    store = KeptModels(tmp_path, limit_bytes=10 * MIB)

    def write(path: Path) -> None:
        path.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    assert store.add("a", "s", about(), write) == "No space left on device"
    with pytest.raises(TypeError):
        store.add("a", "s", about(), lambda path: path.write_bytes(None))
    assert files(store) == []
    assert store.find("a", "s") is None


def test_a_folder_that_cannot_be_made_is_a_reason(tmp_path):
    (tmp_path / "kept-models").write_text("a file")
    assert keep(KeptModels(tmp_path, limit_bytes=10 * MIB), "a") == "File exists"


@pytest.mark.parametrize("mode", [0o620, 0o602])
def test_what_others_could_have_written_is_not_used(tmp_path, mode):
    store = KeptModels(tmp_path, limit_bytes=10 * MIB)
    keep(store, "a")
    store.find("a", "s").chmod(mode)
    assert store.find("a", "s") is None
    store.folder.joinpath("a.s.pt").chmod(0o600)
    assert store.find("a", "s") is not None
    store.folder.chmod(0o700 | mode & 0o077)
    assert store.find("a", "s") is None


def test_a_link_is_not_followed(tmp_path):
    store = KeptModels(tmp_path, limit_bytes=10 * MIB)
    keep(store, "a")
    (store.folder / "b.s.pt").symlink_to(store.folder / "a.s.pt")
    assert store.find("b", "s") is None


_WRITER = """
import sys, time
from pathlib import Path
from llmops_kernel.store.kept_models import KeptModel, KeptModels
def write(path):
    path.write_bytes(b"half")
    print("writing", flush=True)
    time.sleep(60)
KeptModels(Path(sys.argv[1]), limit_bytes=2**30).add(
    "a", "s", KeptModel(model="a", dtype="float32", user="", num_bytes=9), write)
"""


def test_what_a_killed_writer_leaves_is_removed_later(tmp_path):
    command = [sys.executable, "-c", _WRITER, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout.readline() == "writing\n"
        writer.send_signal(signal.SIGKILL)
    store = KeptModels(tmp_path, limit_bytes=10 * MIB)
    [left] = store.folder.iterdir()
    assert store.all() == ()
    assert store.find("a", "s") is None
    keep(store, "b")
    assert left.exists()  # Another process may still be writing it.
    os.utime(left, (0, 0))
    keep(store, "c")
    assert not left.exists()
    assert sorted(each.model for each in store.all()) == ["b", "c"]
