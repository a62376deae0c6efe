"""Where no fork can be had: a plain interpreter starts, and the reason is told."""

from __future__ import annotations

import marshal
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from llmops_kernel.warm import launcher
from tests.waiting import until
from tests.warm.conftest import Node

# Forking fails for it, as where a container allows no more processes. The limit does not hold for
# root, so the module gives up being root where that counts: the real user and two capabilities.
NO_FORK = """
import ctypes, os, resource
resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
os.setresuid(65534, -1, -1)
libc = ctypes.CDLL(None, use_errno=True)
header = (ctypes.c_uint32 * 2)(0x20080522, 0)
data = (ctypes.c_uint32 * 6)()
assert libc.capget(header, data) == 0
data[0] &= ~(1 << 24 | 1 << 21)
assert libc.capset(header, data) == 0
"""
as_root = pytest.mark.skipif(os.getuid() != 0, reason="needs root")


def off(node: Node) -> str:
    until(lambda: (node.folder.read_state() or {}).get("state") == "failed")
    return str((node.folder.read_state() or {})["reason"])


def test_without_a_folder(node: Node) -> None:
    env = node.env()
    del env["LLMOPS_WARM_DIR"]
    assert node.reported(env=env) == "cold: this cluster was started without a fork server"


def test_a_job_that_asks_for_it(node: Node) -> None:
    assert node.reported(env=node.env(LLMOPS_WARM_REFUSE="for a test")) == "cold: for a test"
    assert node.reasons()[-1] == "for a test"


def test_a_jobs_own_subprocess_is_a_plain_one(node: Node) -> None:
    script = f"'{node.folder.bin}/python' -c 'import os; print(os.environ[\"LLMOPS_WARM\"])'"
    code = f"import os; print(os.environ['LLMOPS_WARM'], flush=True); os.system({script!r})"
    lines = node.run("-c", code).stdout.decode().splitlines()
    assert lines == ["warm", "cold: started by a job's own process"]


def test_a_closed_descriptor(node: Node) -> None:
    done = node.run("-c", "import sys; sys.exit(5)", preexec_fn=lambda: os.close(0))
    assert done.returncode == 5
    assert node.reasons()[-1] == "descriptor 0 is closed"


def test_a_working_directory_that_is_gone(node: Node, tmp_path: Path) -> None:
    def leave() -> None:
        os.chdir(tmp_path)
        tmp_path.rmdir()

    assert node.reported(preexec_fn=leave) == "cold: the working directory is gone"


def test_a_program_on_standard_input(node: Node) -> None:
    done = node.run(feed=b"import os; print(os.environ['LLMOPS_WARM'])")
    assert b"cold: python reads its program from standard input" in done.stdout


def test_a_server_without_a_place_to_listen(own_node: Node, short_root: Path) -> None:
    node = Node.create(short_root / ("long" * 25))
    node.start()
    reason = off(node)
    assert "bytes, and 107 are allowed" in reason
    assert node.reported() == f"cold: the fork server cannot start: {reason}"
    node.stop()


def test_a_preloaded_module_that_starts_a_thread(own_node: Node, tmp_path: Path) -> None:
    (tmp_path / "threaded.py").write_text(
        "import threading, time\n"
        "threading.Thread(target=time.sleep, args=(600,), daemon=True, name='lasting').start()"
    )
    own_node.start("threaded", path=str(tmp_path))
    assert off(own_node) == "an imported module started threads: lasting"
    assert own_node.reported() == f"cold: the fork server cannot start: {off(own_node)}"
    assert own_node.events("off")[-1]["reason"] == off(own_node)


def test_a_preloaded_module_that_breaks_is_reported(own_node: Node, tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("1 / 0")
    own_node.start("broken", "not_there", path=str(tmp_path))
    own_node.ready()
    missing = own_node.folder.read_report()["missing"]
    assert missing["broken"] == "ZeroDivisionError: division by zero"
    assert "No module named" in missing["not_there"]
    assert own_node.reported() == "warm"


@as_root
def test_a_server_that_cannot_fork(own_node: Node, tmp_path: Path) -> None:
    (tmp_path / "no_fork.py").write_text(NO_FORK)
    own_node.start("no_fork", path=str(tmp_path))
    own_node.ready()
    assert own_node.folder.read_report()["missing"] == {}
    reason = "the fork server cannot fork: Resource temporarily unavailable"
    assert own_node.reported() == f"cold: {reason}"


def test_a_request_that_is_none_harms_nobody(node: Node) -> None:
    for junk in (b"", b"\xff" * 4, b"\0\0\0\1x", b"\0\0\0\4junk", b"\0\0\0\5" + b"\xe9" * 5):
        with socket.socket(socket.AF_UNIX) as channel:
            channel.connect(str(node.folder.socket))
            channel.sendall(junk)
    assert node.reported() == "warm"


def test_only_the_owner_reaches_the_socket(node: Node) -> None:
    assert node.folder.root.stat().st_mode & 0o777 == 0o700
    assert node.folder.socket.stat().st_mode & 0o777 == 0o600
    for path in (node.folder.state, node.folder.events, node.folder.command):
        assert path.stat().st_mode & 0o077 == 0, path


@as_root
def test_another_user_is_refused_even_where_modes_let_him(own_node: Node) -> None:
    own_node.start()
    own_node.ready()
    for path in (own_node.folder.root, own_node.folder.root.parent):
        path.chmod(0o711)
    own_node.folder.root.parent.parent.chmod(0o711)
    own_node.folder.socket.chmod(0o666)
    heard = {uid: _first_word(uid, own_node.folder.socket) for uid in (0, 65534)}
    assert heard == {0: 1, 65534: 0}


def _first_word(uid: int, address: Path) -> int:
    """Its length, as that user hears it."""
    pid = os.fork()
    if pid == 0:
        try:
            os.setresuid(uid, uid, uid)
            with socket.socket(socket.AF_UNIX) as channel:
                channel.settimeout(5)
                channel.connect(str(address))
                os._exit(len(channel.recv(8)))
        finally:
            os._exit(99)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_an_interpreter_that_is_not_there(node: Node, tmp_path: Path) -> None:
    script = tmp_path / "python"
    text = (node.folder.bin / "python").read_text()
    script.write_text(text.replace(f"--driver {sys.executable}", "--driver /nowhere/python"))
    script.chmod(0o700)
    import subprocess

    done = subprocess.run([script, "-c", "pass"], env=node.env(), capture_output=True, check=False)
    assert done.returncode == 126
    assert b"/nowhere/python: No such file" in done.stderr


def as_worker(node: Node, folder: Path, **env: str) -> tuple[str, float]:
    """How a worker of Ray comes to life, and how long that takes."""
    folder.mkdir(exist_ok=True)
    (folder / "setup_worker.py").write_text("import os; print(os.environ['LLMOPS_WARM'])")
    line = [sys.executable, str(Path(launcher.__file__)), str(folder / "default_worker.py")]
    began_s = time.monotonic()
    done = subprocess.run(line, env=node.env(**env), capture_output=True, text=True, timeout=60)
    return done.stdout.strip(), time.monotonic() - began_s


def test_a_worker_waits_for_a_third_of_rays_limit(own_node: Node, tmp_path: Path) -> None:
    """Ray kills what has not registered: a plain interpreter has to fit into the rest."""
    own_node.folder.write_state("starting", keeper_pid=os.getpid())
    limit = {"RAY_worker_register_timeout_seconds": "6"}
    how, took_s = as_worker(own_node, tmp_path / "ray", **limit)
    assert how == "cold: the fork server was still starting after 2 s"
    assert took_s >= 2
    own_node.folder.state.unlink()


def test_nobody_waits_for_a_server_that_takes_minutes(own_node: Node, tmp_path: Path) -> None:
    own_node.folder.write_state("starting", keeper_pid=os.getpid())
    state = own_node.folder.read_state() or {}
    own_node.folder.state.write_bytes(marshal.dumps(state | {"since_s": time.time() - 200}))
    assert own_node.reported().startswith("cold: the fork server has been starting for 20")
    own_node.folder.state.unlink()


LISTENS = """
import socket, sys, time
listening = socket.socket(socket.AF_UNIX)
listening.bind(sys.argv[1])
listening.listen()
print(flush=True)
while {condition}:
    time.sleep(60) if {sleeps} else None
"""


@pytest.mark.parametrize(("sleeps", "least_s"), [(True, 4.0), (False, 7.9)])
def test_a_server_that_waits_for_the_processor_gets_longer_than_one_that_hangs(
    own_node: Node, tmp_path: Path, sleeps: bool, least_s: float
) -> None:
    code = LISTENS.format(condition=True, sleeps=sleeps)
    line = [sys.executable, "-c", code, str(own_node.folder.socket)]
    with subprocess.Popen(line, stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        server.stdout.readline()
        limit = {"RAY_worker_register_timeout_seconds": "18"}
        how, took_s = as_worker(own_node, tmp_path / "ray", **limit)
        server.kill()
    assert how.startswith("cold: the fork server did not answer within ")
    assert took_s >= least_s
    assert sleeps or "within 8" in how
