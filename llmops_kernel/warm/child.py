"""Turns a forked process into the interpreter that was asked for."""

from __future__ import annotations

import atexit
import builtins
import contextlib
import fcntl
import importlib.machinery
import io
import os
import resource
import runpy
import signal
import socket
import sys
import threading
import time
import types
from dataclasses import dataclass
from typing import Any

from llmops_kernel.warm.launcher import FORKED_ENV_VAR, START_REPORT_ENV_VAR
from llmops_kernel.warm.plan import Base, Plan, python_path
from llmops_kernel.warm.refresh import refresh

_F_SETSIG = 10  # Linux's number; the fcntl module does not have it.
_CONTROL_FD = 100  # Out of the way: a new interpreter has 0, 1 and 2.
_GO_S = 10.0
_FIXED = (signal.SIGKILL, signal.SIGSTOP)


@dataclass(frozen=True, kw_only=True)
class ChildStart:
    """The start of a child: its plan, request and descriptors."""

    plan: Plan
    request: dict[str, Any]
    fds: tuple[int, ...]


def live(start: ChildStart, base: Base) -> int:
    """Become that interpreter, run its program, and return its exit status.

    The caller passes the status to sys.exit, so that the process ends as an interpreter does.
    """
    os.setsid()  # Ray kills a finished worker's whole process group; it must not be the server's.
    control = _take_descriptors(start.fds)
    if not _go(control):
        os._exit(0)  # The launcher has started a plain interpreter meanwhile.
    _die_with_launcher(control)
    _take_over(start, base)
    refresh(start.plan.env, base.env)
    if start.plan.kind == "driver":
        _take_name(start.plan)  # Ray names its workers itself, over the arguments it remembers.
    status = _run(start.plan)
    with contextlib.suppress(OSError):
        control.send(bytes([status & 0xFF]))
    return status


def _take_descriptors(fds: tuple[int, ...]) -> socket.socket:
    control = fcntl.fcntl(fds[3], fcntl.F_DUPFD_CLOEXEC, _CONTROL_FD)
    for number, fd in enumerate(fds[:3]):
        os.dup2(fd, number)
    for fd in fds:
        if fd > 2:
            os.close(fd)
    return socket.socket(fileno=control)


def _go(control: socket.socket) -> bool:
    control.settimeout(_GO_S)
    try:
        return control.recv(1) == b"g"
    except OSError:
        return False
    finally:
        control.settimeout(None)


def _die_with_launcher(control: socket.socket) -> None:
    """End with the launcher: the kernel kills this process when the other end of the socket closes.

    This needs no thread and no server.
    """
    fd = control.fileno()
    fcntl.fcntl(fd, _F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(fd, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) | os.O_ASYNC)
    control.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        if control.recv(1) == b"":
            os._exit(0)  # It closed in between.


def _take_over(start: ChildStart, base: Base) -> None:
    request, plan = start.request, start.plan
    _take_limits(request["pid"])
    os.umask(request["umask"])
    os.chdir(plan.cwd)
    os.environ.clear()
    os.environ.update(plan.env)
    os.environ[START_REPORT_ENV_VAR] = "warm"
    os.environ[FORKED_ENV_VAR] = str(os.getpid())
    _take_signals(request)
    _open_streams(plan)
    _set_path(plan, base)
    for name in [name for name in sys.modules if name.partition(".")[0] == "llmops_kernel"]:
        del sys.modules[name]  # A job brings its own version of this package.


def _take_limits(pid: int) -> None:
    """Take over the launcher's limits, which come from the raylet or the job's supervisor."""
    for name in dir(resource):
        if name.startswith("RLIMIT_"):
            kind = getattr(resource, name)
            with contextlib.suppress(OSError, ValueError):
                limits = resource.prlimit(pid, kind)
                if resource.getrlimit(kind) != limits:
                    resource.setrlimit(kind, limits)
    with contextlib.suppress(OSError):
        os.sched_setaffinity(0, os.sched_getaffinity(pid))
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, os.getpriority(os.PRIO_PROCESS, pid))
    with contextlib.suppress(OSError):
        # The raylet marks workers as the first to be killed when memory runs out.
        with open(f"/proc/{pid}/oom_score_adj") as theirs:
            score = theirs.read()
        with open("/proc/self/oom_score_adj", "w") as ours:
            ours.write(score)


def _take_signals(request: dict[str, Any]) -> None:
    ignored = set(request["ignored"])
    for signum in signal.valid_signals() - set(_FIXED):
        handler = signal.SIG_IGN if signum in ignored else signal.SIG_DFL
        if signal.getsignal(signum) is not handler:
            signal.signal(signum, handler)
    if signal.SIGINT not in ignored:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # The server blocks all signals before the fork: pending ones are delivered here.
    signal.pthread_sigmask(signal.SIG_SETMASK, request["blocked"])


def _open_streams(plan: Plan) -> None:
    """Create new objects over descriptors 0, 1, 2, as an interpreter does when it starts."""
    for name, fd, mode in (("stdin", 0, "r"), ("stdout", 1, "w"), ("stderr", 2, "w")):
        old = getattr(sys, name)
        try:
            raw = open(fd, mode + "b", buffering=0 if plan.unbuffered and fd else -1, closefd=False)  # noqa: SIM115
        except OSError:
            continue
        stream = io.TextIOWrapper(
            raw,
            encoding=old.encoding,
            errors="backslashreplace" if fd == 2 else old.errors,
            line_buffering=fd == 2 or os.isatty(fd),
            write_through=plan.unbuffered and fd > 0,
        )
        file: Any = getattr(raw, "raw", raw)
        file.name = f"<{name}>"
        stream.mode = mode  # type: ignore[misc]
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def _set_path(plan: Plan, base: Base) -> None:
    added = [os.path.normpath(entry) for entry in python_path(plan.env, plan.cwd)]
    # `import ray` would put this folder first; but it is imported already.
    sys.path[:] = [plan.first_path, *dict.fromkeys([*base.thirdparty, *added, *base.path])]
    sys.path_importer_cache.clear()


def _take_name(plan: Plan) -> None:
    """Show the program in `ps` instead of the server's command line."""
    title = os.fsencode(" ".join([sys.executable, *plan.line]))
    with contextlib.suppress(Exception):  # Only a name: no failure matters.
        _write_name(title.replace(b"\0", b" "))


def _write_name(title: bytes) -> None:
    """Overwrite the arguments in memory; /proc/self/stat has their address (fields 48 and 49)."""
    import ctypes

    with open("/proc/self/stat", "rb") as file:
        fields = file.read().rpartition(b")")[2].split()
    start, end = int(fields[45]), int(fields[46])
    # A last byte that is not zero makes the kernel end the text at the first zero.
    limit = end - start - 2
    ctypes.memmove(start, title[:limit].ljust(end - start - 1, b"\0") + b"\1", end - start)


def _run(plan: Plan) -> int:
    main = types.ModuleType("__main__")
    main.__dict__.update(__builtins__=builtins, __annotations__={})
    sys.modules["__main__"] = main
    # As multiprocessing does at import: a spawned child names classes of the program after it.
    sys.modules["__mp_main__"] = main
    sys.argv = [plan.target, *plan.arguments]
    sys.orig_argv = [sys.executable, *plan.line]
    try:
        _execute(plan, main)
    except SystemExit as end:
        return _exit_status(end)
    except BaseException as error:
        return _uncaught(error)
    return 0


def _execute(plan: Plan, main: types.ModuleType) -> None:
    if plan.mode == "module":
        sys.argv[0] = "-m"
        runpy._run_module_as_main(plan.target)  # type: ignore[attr-defined]
        return
    if plan.mode == "command":
        sys.argv[0] = "-c"
        code = compile(plan.target, "<string>", "exec", dont_inherit=True)
    else:
        path = os.path.join(plan.cwd, plan.target)
        main.__file__ = path
        main.__dict__["__cached__"] = None
        main.__loader__ = importlib.machinery.SourceFileLoader("__main__", path)
        with open(path, "rb") as file:
            code = compile(file.read(), path, "exec", dont_inherit=True)
    exec(code, main.__dict__)


def _exit_status(end: SystemExit) -> int:
    if end.code is None:
        return 0
    if isinstance(end.code, int):
        return end.code
    print(end.code, file=sys.stderr)
    return 1


def _uncaught(error: BaseException) -> int:
    """Print the error without this package's frames; Ctrl-C ends the process by its signal."""
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_frame.f_code.co_filename == __file__:
        traceback = traceback.tb_next
    sys.excepthook(type(error), error.with_traceback(traceback), traceback)
    if isinstance(error, KeyboardInterrupt):
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        sys.stdout.flush()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(1)
    return 1


def session_of(pid: int) -> list[int]:
    """Return all processes in that process's session: itself and what it started."""
    pids = [pid]
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != pid:
            with contextlib.suppress(OSError, IndexError), open(f"/proc/{name}/stat", "rb") as file:
                if int(file.read().rpartition(b")")[2].split()[3]) == pid:
                    pids.append(int(name))
    return pids
