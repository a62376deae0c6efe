"""Runs in place of an interpreter: asks the fork server for one, or starts a plain one.

    python launcher.py default_worker.py ARGS...          a Ray worker (raylet's command)
    python -SIE launcher.py --driver PYTHON ARGS...       `python ARGS...` of a job's entrypoint

Run by path and only with built-in modules: every worker pays for each import here. It stays as the
process that its parent knows: it passes signals on and ends with the child's status.
"""

from __future__ import annotations

import _socket
import marshal
import os
import select
import sys
import time

TYPE_CHECKING = False  # The typing module would cost every worker some milliseconds.
if TYPE_CHECKING:
    import signal as _signal
    from collections.abc import Callable
    from typing import Any, NoReturn
else:
    import _signal

DIR_ENV_VAR = "LLMOPS_WARM_DIR"
# The pid of the process that START_REPORT_ENV_VAR is about: a subprocess inherits both.
FORKED_ENV_VAR = "LLMOPS_WARM_PID"
# "warm", or "cold: why", in every process started by the launcher.
START_REPORT_ENV_VAR = "LLMOPS_WARM"
DRIVER_ENV_VAR = "LLMOPS_WARM_DRIVER"  # The launcher's pid; set in a job's own first process.

GREETING = b"h"  # The server's first byte.

# Ray's own limit for a worker, from its start until it registers. A raylet waits so long also for
# one that has died, and starts no other meanwhile.
REGISTER_ENV_VAR = "RAY_worker_register_timeout_seconds"
_REGISTER_S = 60.0  # Ray's default.
_ANSWER_S = 4.0  # A server answers within milliseconds, on a busy machine within seconds.
_START_S = 40.0  # Waiting for a server that imports is cheaper than importing in parallel.
_EVENTS_BYTES = 4 * 1024 * 1024
_LOOK_MS = 100
_REAPED_S = 5.0  # A live server reports a child's end at once.

# The signals with an effect on a process that does not handle them.
_PASSED_ON = [
    getattr(_signal, name)
    for name in ("SIGHUP", "SIGINT", "SIGQUIT", "SIGTERM", "SIGUSR1", "SIGUSR2", "SIGALRM")
]


class Cold(Exception):
    """No forked process is available; the text says why."""


def main() -> None:
    is_driver = sys.argv[1:2] == ["--driver"]
    arguments = sys.argv[3:] if is_driver else sys.argv[1:]
    if is_driver and DRIVER_ENV_VAR in os.environ:
        # A subprocess of a job, not the job: a plain interpreter.
        os.environ[START_REPORT_ENV_VAR] = "cold: started by a job's own process"
        _exec_python(sys.argv[2], arguments)
    if is_driver:
        os.environ[DRIVER_ENV_VAR] = str(os.getpid())
    try:
        channel, control, pid = _forked(arguments, is_driver)
    except Cold as why:
        _start_cold(str(why), arguments, is_driver)
    _be_its_shell(channel, control, pid, is_driver)


def _start_cold(why: str, arguments: list[str], is_driver: bool) -> NoReturn:
    os.environ[START_REPORT_ENV_VAR] = "cold: " + why
    _note({"event": "cold", "reason": why, "kind": "driver" if is_driver else "worker"})
    if is_driver:
        _exec_python(sys.argv[2], arguments)
    ray_own = os.path.join(os.path.dirname(arguments[0]), "setup_worker.py")
    _exec_python(sys.executable, [ray_own, *arguments])


def _exec_python(executable: str, arguments: list[str]) -> NoReturn:
    try:
        os.execv(executable, [executable, *arguments])
    except OSError as error:
        sys.stderr.write(f"{executable}: {error.strerror}\n")
        sys.exit(126)


def _forked(arguments: list[str], is_driver: bool) -> tuple[_socket.socket, _socket.socket, int]:
    """Return the channel to the server, the one to the child, and the child's pid.

    Raises Cold.
    """
    folder = os.environ.get(DIR_ENV_VAR)
    if not folder:
        raise Cold("this cluster was started without a fork server")
    _check_descriptors()
    patience_s = _START_S if is_driver else _patience_s()
    channel = _connect(folder, patience_s)
    began = time.monotonic()
    deadline = began + patience_s
    ours, theirs = _socket.socketpair()
    try:
        request = marshal.dumps(_request(arguments, is_driver))
    except OSError:
        raise Cold("the working directory is gone") from None
    descriptors = b"".join(fd.to_bytes(4, sys.byteorder) for fd in (0, 1, 2, theirs.fileno()))
    channel.settimeout(_ANSWER_S)
    try:
        _exactly(channel, len(GREETING), deadline)
        rights = [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, descriptors)]
        channel.sendmsg([len(request).to_bytes(4, "big")], rights)
        channel.sendall(request)
        kind, value = marshal.loads(_message(channel, deadline))
    except TimeoutError:
        waited_s = max(_ANSWER_S, time.monotonic() - began)
        raise Cold(f"the fork server did not answer within {waited_s:.0f} s") from None
    except (OSError, EOFError, ValueError) as error:
        raise Cold(
            f"the fork server closed the connection ({type(error).__name__}: {error})"
        ) from None
    theirs.close()
    if kind != "forked":
        raise Cold(value)
    channel.settimeout(None)
    return channel, ours, value


def _check_descriptors() -> None:
    """Check that 0, 1 and 2 are open: otherwise the next socket would get the closed number."""
    for fd in (0, 1, 2):
        try:
            os.fstat(fd)
        except OSError:
            raise Cold(f"descriptor {fd} is closed") from None


def _request(arguments: list[str], is_driver: bool) -> dict[str, Any]:
    umask = os.umask(0o077)
    os.umask(umask)
    ignored = [n for n in _signal.valid_signals() if _signal.getsignal(n) == _signal.SIG_IGN]
    return {
        "kind": "driver" if is_driver else "worker",
        "argv": arguments,
        "executable": sys.argv[2] if is_driver else sys.executable,
        "env": dict(os.environ),
        "cwd": os.getcwd(),
        "umask": umask,
        "pid": os.getpid(),
        "ignored": [int(n) for n in ignored],
        "blocked": [int(n) for n in _signal.pthread_sigmask(_signal.SIG_BLOCK, [])],
    }


def _patience_s() -> float:
    """Return for how long a worker waits for a fork server.

    A third of Ray's limit: after that, a plain interpreter still has to come up on a machine that
    is busy.
    """
    try:
        limit_s = float(os.environ.get(REGISTER_ENV_VAR, _REGISTER_S))
    except ValueError:
        limit_s = _REGISTER_S
    return min(_START_S, limit_s / 3)


def _connect(folder: str, patience_s: float) -> _socket.socket:
    """Connect to the server.

    Waits if it is starting; starts one, without waiting, if there is none.
    """
    address = os.path.join(folder, "server.sock")
    deadline = time.monotonic() + patience_s
    while True:
        channel = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
        channel.settimeout(_ANSWER_S)
        try:
            channel.connect(address)
            return channel
        except OSError as error:
            channel.close()
            state = _state(folder)
            _explain(state, folder, error)
        if time.monotonic() > deadline:
            raise Cold(f"the fork server was still starting after {patience_s:.0f} s")
        time.sleep(0.03)


def _explain(state: dict[str, Any] | None, folder: str, error: OSError) -> None:
    """Return if waiting makes sense, else raise Cold."""
    if state is None or not is_alive(state.get("keeper_pid")):
        _start_keeper(folder)
        raise Cold("the fork server was gone; it is being started again")
    if state["state"] == "failed":
        raise Cold(f"the fork server cannot start: {state['reason']}")
    passed_s = time.time() - state["since_s"]
    if state["state"] == "starting" and passed_s > 2 * _START_S:  # Each process would wait.
        raise Cold(f"the fork server has been starting for {passed_s:.0f} s: the machine is busy")
    if state["state"] == "ready" and time.time() - state["since_s"] > _ANSWER_S:
        raise Cold(f"the fork server's socket does not answer ({error.strerror})")


def _waits_for_its_turn(channel: _socket.socket) -> bool:
    """Return whether the server would go on if a processor were free. A hung one sleeps."""
    try:
        peer = channel.getsockopt(_socket.SOL_SOCKET, _socket.SO_PEERCRED, 12)
        pid = int.from_bytes(peer[:4], sys.byteorder)
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] == b"R"
    except (OSError, IndexError):
        return False


def _state(folder: str) -> dict[str, Any] | None:
    try:
        with open(os.path.join(folder, "state"), "rb") as file:
            state = marshal.loads(file.read())
    except (OSError, EOFError, ValueError, TypeError):
        return None
    return state if isinstance(state, dict) else None


def is_alive(pid: Any) -> bool:
    """Return whether the process runs as this user and is no zombie; False for an invalid pid."""
    try:
        os.kill(pid, 0)
        with open(f"/proc/{pid}/stat", "rb") as file:
            return b") Z " not in file.read()
    except (OSError, TypeError):
        return False


def _start_keeper(folder: str) -> None:
    """Run the command that the cluster's start left behind; a lock lets only one of several win."""
    try:
        with open(os.path.join(folder, "keeper.cmd"), "rb") as file:
            line, env = marshal.loads(file.read())
        if os.fork() == 0:
            try:
                os.setsid()
                if os.fork() == 0:
                    null = os.open(os.devnull, os.O_RDWR)
                    for fd in (0, 1, 2):
                        os.dup2(null, fd)
                    os.chdir(folder)
                    os.execve(line[0], line, env)
            finally:
                os._exit(0)
        os.wait()
    except (OSError, EOFError, ValueError):
        return  # The cold start reports the reason already.


def _note(event: dict[str, Any]) -> None:
    """Append one line to the node's event log, readable by people."""
    folder = os.environ.get(DIR_ENV_VAR)
    if not folder:
        return
    import json

    event = {"time_s": round(time.time(), 3), "pid": os.getpid(), **event}
    try:
        path = os.path.join(folder, "events.jsonl")
        fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        if os.fstat(fd).st_size < _EVENTS_BYTES:
            os.write(fd, (json.dumps(event) + "\n").encode())
        os.close(fd)
    except OSError:
        return


def _message(channel: _socket.socket, deadline: float) -> bytes:
    head = _exactly(channel, 4, deadline)
    return _exactly(channel, int.from_bytes(head, "big"), deadline)


def _exactly(channel: _socket.socket, size: int, deadline: float) -> bytes:
    """Read so many bytes; wait until the deadline for a server that only waits for a processor."""
    data = b""
    while len(data) < size:
        try:
            part = channel.recv(size - len(data))
        except TimeoutError:
            if time.monotonic() > deadline or not _waits_for_its_turn(channel):
                raise
            continue
        if not part:
            raise EOFError("closed")
        data += part
    return data


def _be_its_shell(
    channel: _socket.socket, control: _socket.socket, pid: int, is_driver: bool
) -> NoReturn:
    """Wait until the child has ended, then end in the same way."""
    before = _signal.pthread_sigmask(_signal.SIG_BLOCK, _PASSED_ON)

    def pass_on(signum: int, frame: object) -> None:
        # A job is stopped through its process group, which this process does not belong to.
        if not (is_driver and _signalled(os.killpg, pid, signum)):
            _signalled(os.kill, pid, signum)  # It has no group of its own yet.

    for signum in _PASSED_ON:
        if _signal.getsignal(signum) != _signal.SIG_IGN:
            _signal.signal(signum, pass_on)
    null = os.open("/dev/null", os.O_RDWR)
    for fd in (0, 1):  # Only the child holds them now: when it closes one, the other end sees it.
        os.dup2(null, fd)
    try:
        control.sendall(b"g")  # From here on it is a worker; before, it belonged to nobody.
    except OSError:
        os._exit(1)
    _signal.pthread_sigmask(_signal.SIG_SETMASK, before)
    status = _ending(channel, control, pid)
    if os.WIFSIGNALED(status):
        _die_of(os.WTERMSIG(status))
    os._exit(os.WEXITSTATUS(status))


def _signalled(send: Callable[[int, int], None], pid: int, signum: int) -> bool:
    try:
        send(pid, signum)
    except OSError:
        return False
    return True


def _wakeup() -> _socket.socket:
    """Return a socket that a signal makes readable, even one that comes just before the poll."""
    ours, theirs = _socket.socketpair()
    for side in (ours, theirs):
        side.setblocking(False)
    _signal.set_wakeup_fd(theirs.detach(), warn_on_full_buffer=False)
    return ours


def _ending(channel: _socket.socket, control: _socket.socket, pid: int) -> int:
    """Return the child's wait status; if the server dies first, the last byte the child sent."""
    last_word = None
    ended_s = 0.0
    poll = select.poll()
    sources = {channel.fileno(): channel, control.fileno(): control}
    wakeup = _wakeup()
    for fd in (*sources, wakeup.fileno()):
        poll.register(fd, select.POLLIN)
    while True:
        # With one of the two gone, the end may come without a message: poll for it.
        for fd, _ in poll.poll(None if len(sources) == 2 else _LOOK_MS):
            if fd == wakeup.fileno():
                wakeup.recv(4096)
                continue
            try:
                data = sources[fd].recv(8)
            except OSError:
                data = b""
            if data and sources[fd] is channel:
                return int.from_bytes(data[4:8], "big")
            if data:
                last_word = data[-1]
                continue
            poll.unregister(fd)
            del sources[fd]
        if len(sources) < 2 and not is_alive(pid):
            ended_s = ended_s or time.monotonic()
            if channel.fileno() not in sources or time.monotonic() - ended_s > _REAPED_S:
                break
    return _without_server(last_word, pid)


def _without_server(last_word: int | None, pid: int) -> int:
    _note({"event": "orphan", "child_pid": pid, "exit_code": last_word})
    if last_word is None:
        sys.stderr.write("llmops: the fork server died, and then this process in an unknown way\n")
        return 1 << 8
    return last_word << 8


def _die_of(signum: int) -> NoReturn:
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # The child has left the core dump.
        _signal.signal(signum, _signal.SIG_DFL)
    except (OSError, ValueError, ImportError):
        pass  # SIGKILL has no handler to set.
    _signal.pthread_sigmask(_signal.SIG_UNBLOCK, [signum])
    os.kill(os.getpid(), signum)
    os._exit(128 + signum)


if __name__ == "__main__":
    main()
