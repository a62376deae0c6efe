"""`up` and `status` say that DeepSpeed is compiled in the background."""

from __future__ import annotations

import fcntl
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from llmops_kernel.providers.local.status import announcement, compilation_state
from llmops_kernel.store.compiled_ops import lock_file, marked, will_compile


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path))
    return tmp_path


@pytest.fixture
def compiling(folder: Path) -> Iterator[None]:
    with lock_file(folder).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with marked(folder):
            yield


def put_library(folder: Path) -> None:
    library = folder / "deepspeed_shm_comm" / "deepspeed_shm_comm.so"
    library.parent.mkdir()
    library.touch()


def test_up_announces_the_compilation_with_its_usual_time(folder: Path) -> None:
    if not will_compile():
        pytest.skip("nothing is compiled on this machine: a GPU, or neither compiler nor DeepSpeed")
    assert announcement({"enabled": True}) == (
        "DeepSpeed's CPU operations are compiled in the background (usually 1 to 3 minutes,"
        " once per machine); a ZeRO run that starts earlier waits for them"
    )


def test_up_says_nothing_where_nothing_is_compiled(folder: Path) -> None:
    assert announcement({"enabled": False}) == ""
    put_library(folder)
    assert announcement({"enabled": True}) == ""


def test_status_says_for_how_long_it_has_been_compiled(compiling: None) -> None:
    assert compilation_state(now_s=time.time() + 42.0).startswith(
        "DeepSpeed's CPU operations are being compiled for 42 s (usually 1 to 3 minutes"
    )


def test_status_is_silent_otherwise(folder: Path) -> None:
    assert compilation_state() == ""
