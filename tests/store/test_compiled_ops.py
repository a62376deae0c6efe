"""What is known of DeepSpeed's compiled operations without importing it."""

from __future__ import annotations

import fcntl
from pathlib import Path

import pytest

from llmops_kernel.store.compiled_ops import (
    SHARED_MEMORY,
    compiling_since_s,
    is_compiled,
    lock_file,
    marked,
    ops_folder,
)


def test_an_operation_is_compiled_when_its_library_is_there(tmp_path: Path) -> None:
    assert not is_compiled((SHARED_MEMORY,), folder=tmp_path)
    library = tmp_path / "deepspeed_shm_comm" / "deepspeed_shm_comm.so"
    library.parent.mkdir()
    assert not is_compiled((SHARED_MEMORY,), folder=tmp_path)
    library.touch()
    assert is_compiled((SHARED_MEMORY,), folder=tmp_path)
    assert not is_compiled((SHARED_MEMORY, "CPUAdamBuilder"), folder=tmp_path)


def test_a_compilation_is_seen_while_its_lock_is_held(tmp_path: Path) -> None:
    assert compiling_since_s(folder=tmp_path) is None
    with lock_file(tmp_path).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert compiling_since_s(folder=tmp_path) is None
        with marked(tmp_path):
            assert compiling_since_s(folder=tmp_path) is not None
        assert compiling_since_s(folder=tmp_path) is None


def test_the_mark_of_a_killed_compilation_means_nothing(tmp_path: Path) -> None:
    lock_file(tmp_path).touch()
    (tmp_path / ".llmops.compiling").write_text('{"began_s": 1}')
    assert compiling_since_s(folder=tmp_path) is None


def test_the_folder_can_be_moved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path))
    assert ops_folder() == tmp_path
