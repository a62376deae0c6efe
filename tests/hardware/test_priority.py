"""The kernel's own account of a session's niceness, and who gives way to whom."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from llmops_kernel.hardware.priority import (
    give_idle_time,
    give_share,
    has_idle_time,
    set_session_niceness,
)


def account(pid: int | str) -> tuple[str, str]:
    """The kernel's group of a session, and its niceness; both empty for processes of no group.

    Of no group are those with the session of the first process, as in a container without an init.
    """
    words = Path(f"/proc/{pid}/autogroup").read_text().split()
    return (words[0], words[-1]) if words else ("", "")


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    """One with a session of its own."""
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as started:
        yield started
        started.kill()


def skip_unless_the_kernel_takes_it(pid: int) -> None:
    """Not every kernel groups by session, and a sandbox may forbid the writing."""
    try:
        Path(f"/proc/{pid}/autogroup").write_text("7")
        group, niceness = account(pid)
    except (OSError, ValueError) as error:
        pytest.skip(f"this kernel takes no niceness of a session: {error}")
    if niceness != "7":
        pytest.skip(f"this kernel keeps no niceness of a session: {group!r} {niceness!r}")
    time.sleep(0.2)  # Unless from an administrator, it takes one each 0.1 s.


def test_only_the_session_of_the_process_gives_way(process: subprocess.Popen[bytes]) -> None:
    skip_unless_the_kernel_takes_it(process.pid)
    before = account("self")
    set_session_niceness(process.pid, 19)
    assert account(process.pid)[1] == "19"
    assert account("self") == before


def test_a_process_that_is_gone_is_no_error(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    set_session_niceness(process.pid, 19)


LEAVES_AS_A_USER = """
import os, sys
from llmops_kernel.hardware.priority import give_share, has_idle_time
os.setresuid(65534, 65534, 65534)
print(give_share(int(sys.argv[1])), has_idle_time(int(sys.argv[1])))
"""


def test_a_session_gets_only_what_nobody_wants_and_its_share_back(
    process: subprocess.Popen[bytes],
) -> None:
    assert not has_idle_time(process.pid)
    give_idle_time(process.pid)
    assert os.sched_getscheduler(process.pid) == os.SCHED_IDLE
    assert has_idle_time(process.pid)
    if os.getuid() == 0:  # With a default RLIMIT_NICE, nobody else may.
        assert give_share(process.pid)
        assert os.sched_getscheduler(process.pid) == os.SCHED_OTHER


@pytest.mark.skipif(os.getuid() != 0, reason="becomes another user")
def test_where_it_may_not_have_it_back_that_is_said() -> None:
    with subprocess.Popen(["sleep", "60"], start_new_session=True, user=65534) as process:
        give_idle_time(process.pid)
        done = subprocess.run(
            [sys.executable, "-c", LEAVES_AS_A_USER, str(process.pid)], capture_output=True
        )
        process.kill()
    assert done.stdout.split() == [b"False", b"True"], done.stderr


GIVES_WAY = """
import os
from llmops_kernel.hardware.priority import give_way, is_busy, take_share
own = lambda: os.getpriority(os.PRIO_PROCESS, 0)
begin, busy, before = own(), is_busy(), give_way()
print(busy, begin == before, own() - begin, end=" ")
take_share(before)
print(os.getsid(0) == os.getpid(), own() - begin)
"""


def test_a_process_gives_way_on_a_busy_node_only_and_gets_its_share_back() -> None:
    own = os.getpriority(os.PRIO_PROCESS, 0)
    done = subprocess.run(
        [sys.executable, "-c", GIVES_WAY], capture_output=True, check=True, start_new_session=True
    )
    busy, same, given, leads, left = done.stdout.decode().split()
    assert (same, leads) == ("True", "True")
    assert int(given) == (max(0, 5 - own) if busy == "True" else 0)
    assert left == "0" or os.getuid() != 0
