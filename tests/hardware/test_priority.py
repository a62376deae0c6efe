"""The kernel's own account of a session's niceness."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from llmops_kernel.hardware.priority import set_session_niceness


def niceness(pid: int | str) -> str:
    return Path(f"/proc/{pid}/autogroup").read_text().split()[-1]


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    """One with a session of its own."""
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as started:
        yield started
        started.kill()


@pytest.mark.skipif(
    not Path("/proc/self/autogroup").exists(), reason="this kernel does not group by session"
)
def test_only_the_session_of_the_process_gives_way(process: subprocess.Popen[bytes]) -> None:
    before = niceness("self")
    set_session_niceness(process.pid, 19)
    assert niceness(process.pid) == "19"
    assert niceness("self") == before


def test_a_process_that_is_gone_is_no_error(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    set_session_niceness(process.pid, 19)
