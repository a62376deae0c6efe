"""Real kills of launchers, servers and keepers: programs still start, statuses stay right."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.waiting import until
from tests.warm.conftest import Node, is_alive

SLEEP = "import os, time; print(os.getpid(), flush=True); time.sleep(60)"


def started(process: subprocess.Popen[Any]) -> int:
    """The pid that a program printed first."""
    assert process.stdout is not None
    return int(process.stdout.readline())


def held(node: Node) -> subprocess.Popen[Any]:
    """A program that goes on until a line comes to its standard input."""
    running = node.popen("-c", "print(1, flush=True); input(); raise SystemExit(6)", stdin=-1)
    started(running)
    return running


def ends_as_it_would(running: subprocess.Popen[Any]) -> None:
    running.communicate(b"\n", timeout=40)
    assert running.returncode == 6


def gone(pid: int) -> None:
    until(lambda: not is_alive(pid), timeout_s=40)


def test_a_killed_launcher_takes_its_child_along(node: Node) -> None:
    process = node.popen("-c", SLEEP)
    pid = started(process)
    process.kill()
    gone(pid)


def test_a_killed_launcher_takes_its_childs_processes_along(node: Node) -> None:
    code = "import subprocess as s; print(s.Popen(['sleep', '60']).pid, flush=True); input()"
    process = node.popen("-c", code, stdin=subprocess.PIPE)
    pid = started(process)
    process.kill()
    gone(pid)


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1])
def test_a_signal_reaches_the_program_and_what_it_started(node: Node, signum: int) -> None:
    code = "import subprocess as s; print(s.Popen(['sleep', '60']).pid, flush=True); input()"
    process = node.popen("-c", code, stdin=subprocess.PIPE)
    pid = started(process)
    process.send_signal(signum)
    assert process.wait(40) == -signum
    gone(pid)


def test_a_handler_of_the_program_is_called(node: Node) -> None:
    code = (
        "import signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(9))\n"
        "print(1, flush=True); time.sleep(60)"
    )
    process = node.popen("-c", code)
    started(process)
    process.terminate()
    assert process.wait(40) == 9


def test_a_signal_at_any_moment_of_the_start_ends_it(node: Node) -> None:
    for pause_ms in range(0, 60, 4):
        process = node.popen("-c", SLEEP)
        time.sleep(pause_ms / 1000)
        process.terminate()
        assert process.wait(40) == -signal.SIGTERM, pause_ms
    until(lambda: (node.status() or {}).get("children") == 0)


def test_nothing_is_left_after_many_processes(node: Node) -> None:
    for _ in range(5):
        node.run("-c", "pass")
    server = psutil.Process(node.server_pid)
    until(lambda: (node.status() or {}).get("children") == 0)
    fds, memory = server.num_fds(), server.memory_info().rss
    for _ in range(20):
        batch = [node.popen("-c", "pass") for _ in range(10)]
        assert [process.wait(60) for process in batch] == [0] * 10
    until(lambda: (node.status() or {}).get("children") == 0)
    # Our own question's connection may be counted on either side.
    until(lambda: server.num_fds() <= fds + 1)
    assert server.children() == []
    assert server.memory_info().rss - memory < 2 * 1024 * 1024


def test_a_killed_server_comes_back_and_its_children_end_as_they_would(own_node: Node) -> None:
    own_node.start()
    old_pid = own_node.ready().server_pid
    running = held(own_node)
    orphan = own_node.popen("-c", SLEEP)
    orphan_pid = started(orphan)
    os.kill(own_node.keeper.pid, signal.SIGSTOP)  # type: ignore[union-attr]
    os.kill(old_pid, signal.SIGKILL)
    gone(old_pid)
    assert own_node.reported().startswith("cold: the fork server's socket does not answer")
    assert "does not answer" in own_node.reasons()[-1]
    ends_as_it_would(running)
    orphan.kill()
    gone(orphan_pid)
    os.kill(own_node.keeper.pid, signal.SIGCONT)  # type: ignore[union-attr]
    until(lambda: own_node.server_is_new(old_pid))
    assert own_node.reported() == "warm"
    assert own_node.events("died")[-1]["reason"] == "killed by SIGKILL"


def test_a_server_that_hangs_is_passed_by_and_replaced(own_node: Node) -> None:
    own_node.start()
    old_pid = own_node.ready().server_pid
    running = held(own_node)
    os.kill(old_pid, signal.SIGSTOP)
    began_s = time.monotonic()
    assert own_node.reported() == "cold: the fork server did not answer within 4 s"
    assert time.monotonic() - began_s < 20
    until(lambda: own_node.server_is_new(old_pid), timeout_s=25)
    assert own_node.reported() == "warm"
    ends_as_it_would(running)


def test_a_killed_keeper_is_started_again_by_whom_it_lacks(own_node: Node) -> None:
    own_node.start()
    old_pid = own_node.ready().server_pid
    running = held(own_node)
    assert own_node.keeper is not None
    own_node.keeper.kill()
    own_node.keeper.wait()
    until(lambda: "gone" in own_node.reported())
    until(lambda: own_node.server_is_new(old_pid))
    assert own_node.reported() == "warm"
    # The server that lost its keeper stays for its child only, and still tells how that ended.
    assert is_alive(old_pid)
    ends_as_it_would(running)
    gone(old_pid)


def test_a_removed_socket_is_recreated(own_node: Node) -> None:
    own_node.start()
    old_pid = own_node.ready().server_pid
    own_node.folder.socket.unlink()
    until(lambda: own_node.server_is_new(old_pid))
    assert own_node.reported() == "warm"
    assert own_node.events("replaced")[-1]["reason"] == "its socket was gone"
    gone(old_pid)


def test_changed_packages_mean_a_new_server(own_node: Node, changeable: Path) -> None:
    own_node.start()
    old_pid = own_node.ready().server_pid
    running = held(own_node)
    assert own_node.keeper is not None
    own_node.keeper.send_signal(signal.SIGSTOP)
    (changeable / "installed_now.py").touch()
    changed = "the installed packages changed"
    assert own_node.reported() == f"cold: {changed}; the fork server is being restarted"
    own_node.keeper.send_signal(signal.SIGCONT)
    until(lambda: own_node.server_is_new(old_pid))
    assert own_node.reported() == "warm"
    assert own_node.events("replaced")[-1]["reason"] == changed
    ends_as_it_would(running)
    gone(old_pid)


def test_a_file_edited_in_place_is_never_run_from_memory(own_node: Node, tmp_path: Path) -> None:
    library = tmp_path / "site-packages"
    (library / "edited").mkdir(parents=True)
    (library / "edited" / "__init__.py").write_text("from edited.deep import VALUE")
    deep = library / "edited" / "deep.py"
    deep.write_text("VALUE = 'old'")
    own_node.start("edited", path=str(library))
    old_pid = own_node.ready().server_pid

    def value() -> tuple[str, str]:
        code = "import os, edited; print(edited.VALUE, os.environ['LLMOPS_WARM'])"
        done = own_node.run("-c", code, env=own_node.env(PYTHONPATH=str(library)))
        found, _, how = done.stdout.decode().strip().partition(" ")
        return found, how

    assert value() == ("old", "warm")
    assert own_node.keeper is not None
    own_node.keeper.send_signal(signal.SIGSTOP)
    deep.write_text("VALUE = 'new!'")
    reason = f"{deep} changed on disk"
    # The workers of one group share a comparison.
    until(lambda: value() == ("new!", f"cold: {reason}; the fork server is being restarted"))
    own_node.keeper.send_signal(signal.SIGCONT)
    until(lambda: own_node.server_is_new(old_pid))
    assert value() == ("new!", "warm")
    assert own_node.events("replaced")[-1]["reason"] == reason


def test_keeper_and_server_end_with_the_watched_process(own_node: Node) -> None:
    watched = subprocess.Popen(["sleep", "60"])
    own_node.start(watch=watched.pid)
    server_pid = own_node.ready().server_pid
    watched.kill()
    watched.wait()
    gone(server_pid)
    assert own_node.keeper is not None
    assert own_node.keeper.wait(40) == 0
