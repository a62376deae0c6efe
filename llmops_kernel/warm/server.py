"""The fork server: imports the training stack once, then forks a process for each request."""

from __future__ import annotations

import array
import contextlib
import ctypes
import marshal
import os
import select
import selectors
import signal
import socket
import struct
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from llmops_kernel.hardware import priority
from llmops_kernel.warm import child, files, tokenizer_cache
from llmops_kernel.warm.env_reads import LookedFor, Recording
from llmops_kernel.warm.launcher import GREETING
from llmops_kernel.warm.plan import Base, Plan, RefusedError, plan
from llmops_kernel.warm.preload import preload, without_collections
from llmops_kernel.warm.refresh import noting_generators

_LONGEST_REQUEST = 64 * 1024 * 1024
_PR_SET_PDEATHSIG = 1
_NAME = "llmops_kernel.warm.server"
_CLOSES_S = 0.2
_POLL_S = 5.0
_FDS = 4  # stdin, stdout, stderr and the control channel to the launcher.


@dataclass(eq=False, kw_only=True)
class _Caller:
    """A launcher: its channel, what has arrived so far, and its child."""

    channel: socket.socket
    data: bytearray = field(default_factory=bytearray)
    fds: list[int] = field(default_factory=list)
    pid: int | None = None
    kind: str = ""

    def request(self) -> dict[str, Any] | None:
        """Return the request once it is complete. Raises ValueError if it is invalid."""
        if len(self.data) < 4:
            return None
        size = int.from_bytes(self.data[:4], "big")
        if size > _LONGEST_REQUEST:
            raise ValueError(f"a request of {size} bytes")
        if len(self.data) < 4 + size:
            return None
        request = marshal.loads(bytes(self.data[4 : 4 + size]))
        if not isinstance(request, dict) or "kind" not in request:
            raise ValueError("not a request")
        return request


class Server:
    """Has one thread, and imports nothing after `ready` but what a tokenizer needs."""

    def __init__(self, folder: files.WarmFolder, base: Base) -> None:
        self._folder = folder
        self._base = base
        self._selector = selectors.DefaultSelector()
        self._callers: dict[int, _Caller] = {}  # By child pid.
        self._waiting: list[_Caller] = []  # Callers without a child.
        self._trials: dict[int, tokenizer_cache.TokenizerRequest] = {}  # By child pid.
        self._check_s = 0.0
        self._forked = 0
        self._draining = False
        self._wakeup = socket.socketpair()
        self._listening = _listen(folder)

    def serve(self) -> child.ChildStart | None:
        """Serve requests.

        Returns in each child what it has to become, and None when the server ends.
        """
        self._watch_signals()
        self._selector.register(self._listening, selectors.EVENT_READ, self._accept)
        while not (self._draining and not self._callers):
            timeout_s = _POLL_S if tokenizer_cache.entries() else None
            for key, _ in self._selector.select(timeout_s):
                birth = key.data(key.fileobj)
                if birth is not None:
                    return birth  # type: ignore[no-any-return]
            if time.monotonic() > self._check_s:
                tokenizer_cache.drop_if_short()
                self._check_s = time.monotonic() + _POLL_S
        return None

    def _watch_signals(self) -> None:
        for side in self._wakeup:
            side.setblocking(False)
        signal.set_wakeup_fd(self._wakeup[1].fileno(), warn_on_full_buffer=False)
        for signum in (signal.SIGCHLD, signal.SIGTERM):
            signal.signal(signum, lambda *_: None)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        self._selector.register(self._wakeup[0], selectors.EVENT_READ, self._on_signal)

    def _on_signal(self, wakeup: socket.socket) -> None:
        with contextlib.suppress(BlockingIOError):
            if signal.SIGTERM in wakeup.recv(4096):
                self._drain()
        while True:
            try:
                ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if ended is None:
                return
            caller = self._callers.pop(ended.si_pid, None)
            was_killed = (ended.si_code, ended.si_status) == (os.CLD_KILLED, signal.SIGKILL)
            if caller is not None and was_killed and _is_gone(caller.channel):
                # The kernel has killed it with its launcher, before this process has read the end
                # of the launcher. Until it is waited for, no other session has its number.
                _kill_session(ended.si_pid)
            _, status = os.waitpid(ended.si_pid, 0)
            request = self._trials.pop(ended.si_pid, None)
            if request is not None and status == 0 and not self._draining:
                tokenizer_cache.add(request)
                self._base.files.add_new()
            if caller is not None:
                _send(caller.channel, status.to_bytes(4, "big"))
                self._forget(caller)

    def _drain(self) -> None:
        """Accept no more requests: a newer server takes over, this one stays for its children."""
        if not self._draining:
            self._draining = True
            tokenizer_cache.drop()
            self._selector.unregister(self._listening)
            self._listening.close()

    def _accept(self, listening: socket.socket) -> None:
        try:
            channel, _ = listening.accept()
        except OSError:
            return  # The launcher has ended already, or no descriptor is left for it.
        if _peer(channel)[1] not in (os.getuid(), 0):
            channel.close()
            return
        channel.setblocking(False)
        # A launcher without a greeting has not sent its descriptors. In the queue of a hung server
        # they would stay open, and a reader of its output would wait for their end.
        with contextlib.suppress(OSError):
            channel.send(GREETING)
        caller = _Caller(channel=channel)
        self._waiting.append(caller)
        self._selector.register(channel, selectors.EVENT_READ, lambda _: self._on_data(caller))

    def _on_data(self, caller: _Caller) -> child.ChildStart | None:
        try:
            data, ancillary, _, _ = caller.channel.recvmsg(65536, socket.CMSG_SPACE(_FDS * 4))
        except (BlockingIOError, InterruptedError):
            return None
        except OSError:
            data, ancillary = b"", []
        for level, kind, payload in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                fds = array.array("i")
                fds.frombytes(payload[: len(payload) - len(payload) % fds.itemsize])
                caller.fds += fds
        if not data:
            self._on_lost_launcher(caller)
            return None
        caller.data += data
        try:
            request = caller.request()
        except (ValueError, EOFError, TypeError):
            self._forget(caller)
            return None
        return None if request is None or caller.pid else self._answer(caller, request)

    def _answer(self, caller: _Caller, request: dict[str, Any]) -> child.ChildStart | None:
        if request["kind"] == "status":
            _send(caller.channel, marshal.dumps(("status", self._status())))
            self._forget(caller)
            return None
        if request["kind"] == "keep":
            self._forget(caller)
            with contextlib.suppress(KeyError, TypeError, ValueError):  # It is not understood.
                self._try(tokenizer_cache.tokenizer_request(request))
            return None
        if len(caller.fds) != _FDS:
            self._forget(caller)
            return None
        try:
            child_plan = plan(request, self._base)
        except RefusedError as why:
            self._refuse(caller, str(why))
        except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
            self._refuse(caller, f"not understood ({type(error).__name__}: {error})")
        else:
            return self._fork(caller, child_plan, request)
        return None

    def _try(self, request: tokenizer_cache.TokenizerRequest) -> None:
        """Have a child try what this process is to load: `_on_signal` sees how it ended.

        One that is kept already is only marked as used.
        """
        if self._trials or self._draining:
            return
        if tokenizer_cache.is_cached(request):
            tokenizer_cache.mark_used(request)
            return
        if not tokenizer_cache.can_add(request):
            return
        pid = -1
        with contextlib.suppress(OSError):
            pid = os.fork()
        if pid > 0:
            self._trials[pid] = request
        elif pid == 0:
            harmless = False
            try:
                self._leave(None)
                harmless = tokenizer_cache.is_harmless(request)
            finally:
                os._exit(0 if harmless else 1)

    def _fork(
        self, caller: _Caller, child_plan: Plan, request: dict[str, Any]
    ) -> child.ChildStart | None:
        # A signal to the child stays pending until the child has that signal's handlers.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            pid = os.fork()
        except OSError as error:
            pid = -1
            why = f"the fork server cannot fork: {error.strerror}"
        if pid == 0:
            return self._child_start(caller, child_plan, request)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        if pid < 0:
            self._refuse(caller, why)
            return None
        self._forked += 1
        caller.pid, caller.kind = pid, child_plan.kind
        caller.data.clear()
        self._callers[pid] = caller
        self._waiting.remove(caller)
        _close(caller)
        _send(caller.channel, marshal.dumps(("forked", pid)))
        return None

    def _refuse(self, caller: _Caller, why: str) -> None:
        _send(caller.channel, marshal.dumps(("refused", why)))
        self._forget(caller)

    def _child_start(
        self, caller: _Caller, child_plan: Plan, request: dict[str, Any]
    ) -> child.ChildStart:
        self._leave(caller)
        return child.ChildStart(plan=child_plan, request=request, fds=tuple(caller.fds))

    def _leave(self, caller: _Caller | None) -> None:
        """Close all of the server in a child, except what its caller has sent."""
        signal.set_wakeup_fd(-1)
        for key in list(self._selector.get_map().values()):
            key.fileobj.close()  # type: ignore[union-attr]
        self._selector.close()
        for open_caller in [*self._callers.values(), *self._waiting]:
            open_caller.channel.close()
            if open_caller is not caller:
                _close(open_caller)
        self._wakeup[1].close()

    def _on_lost_launcher(self, caller: _Caller) -> None:
        """Handle a launcher that is gone.

        It was killed, so its child and descendants are killed too.
        """
        if caller.pid is not None and self._callers.pop(caller.pid, None) is caller:
            _kill_session(caller.pid)
        self._forget(caller)

    def _forget(self, caller: _Caller) -> None:
        _close(caller)
        if caller in self._waiting:
            self._waiting.remove(caller)
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(caller.channel)
        caller.channel.close()

    def _status(self) -> dict[str, Any]:
        return {
            "pid": os.getpid(),
            "forked": self._forked,
            "children": len(self._callers),
            "drivers": sum(caller.kind == "driver" for caller in self._callers.values()),
            "python": sys.executable,
            "changed": self._base.files.changed(),
            "tokenizers": tokenizer_cache.entries(),
        }


def _listen(folder: files.WarmFolder) -> socket.socket:
    """Listen under another name first: the real one appears when it accepts connections."""
    name = folder.socket.with_name(f"s{os.getpid()}")
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    mask = os.umask(0o177)
    try:
        listening.bind(str(name))
    finally:
        os.umask(mask)
    listening.listen(256)
    listening.setblocking(False)
    name.rename(folder.socket)
    return listening


def _peer(channel: socket.socket) -> tuple[int, int]:
    """Return the pid and uid of the process at the other end."""
    size = struct.calcsize("3i")
    pid, uid, _ = struct.unpack(
        "3i", channel.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
    )
    return pid, uid


def _kill_session(leader: int) -> None:
    """Kill a process and all that it has started."""
    for pid in child.session_of(leader):
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)


def _is_gone(channel: socket.socket) -> bool:
    """Return whether the launcher has ended. It closes this channel a moment after its child's."""
    poll = select.poll()
    poll.register(channel, select.POLLIN)
    if not poll.poll(_CLOSES_S * 1000):
        return False
    try:
        return channel.recv(1, socket.MSG_PEEK) == b""
    except OSError:
        return True


def _send(channel: socket.socket, payload: bytes) -> None:
    """Send an answer that fits the socket's buffer; a launcher that is gone needs none."""
    with contextlib.suppress(OSError):
        channel.send(len(payload).to_bytes(4, "big") + payload)


def _close(caller: _Caller) -> None:
    for fd in caller.fds:
        with contextlib.suppress(OSError):
            os.close(fd)
    caller.fds = []


def _end_with_keeper() -> None:
    """Get SIGTERM when the keeper ends: nothing would replace this server any more."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def main(arguments: list[str]) -> int:
    """Run `server FOLDER MODULE...`. In a child, return its program's exit status."""
    _end_with_keeper()
    folder = files.WarmFolder(Path(arguments[0]))
    began_s = time.time()
    # The raylet ends if its agents need over 15 s to start (`WaitForPersistedPort`, Ray 2.60), as
    # they do on a busy node while this process imports the training stack. On a quiet one both get
    # their share: the cluster is up a second later, the first submission waits two seconds less.
    niceness = priority.give_way()
    base = Base.of_this_process()
    with (
        Recording() as recording,
        LookedFor() as looked_for,
        without_collections(),
        noting_generators(),
    ):
        loaded = preload(arguments[1:])
    priority.take_share(niceness)  # Forks take their launcher's niceness, mostly 15.
    if "ray" in loaded["missing"] and "ray" in sys.modules:
        # This build cannot be forked from; everything but Ray still can.
        remaining = [name for name in arguments[1:] if name.partition(".")[0] != "ray"]
        os.execv(sys.executable, [sys.executable, "-m", _NAME, arguments[0], *remaining])
    reads = recording.reads()
    base = base.after_preload(reads)
    server = Server(folder, base)
    about = {"pid": os.getpid(), "took_s": time.time() - began_s, "reads": reads.as_report()}
    folder.write_report(loaded | about | {"looked_for": sorted(looked_for.names)})
    start = server.serve()
    if start is None:
        return 0
    del server
    return child.live(start, base)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
