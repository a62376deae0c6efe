"""A machine of its own for the soak: mounts, processes and loopback network that end with it.

A second user cannot reach an interpreter below a home folder of mode 0700 (`/root`). Inside, an
empty folder stands in such a place, with only what Python needs in it. `/tmp` and `/dev/shm` are
empty and shared by the users of the soak, with nobody else.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
INSIDE_ENV_VAR = "LLMOPS_SOAK_INSIDE"
_MS_BIND, _MS_REC, _MS_NOSUID, _MS_NODEV = 4096, 16384, 2, 4
_SIOCSIFFLAGS, _IFF_UP_RUNNING = 0x8914, 0x1 | 0x40
_UNSHARE = (
    *("unshare", "--mount", "--pid", "--net", "--ipc", "--fork", "--kill-child"),
    "--mount-proc",
)


def refusal() -> str:
    """Return why the soak cannot run here, with what to do; empty if it can."""
    if os.geteuid() != 0 or not _has_many_ids():
        return (
            "The soak needs root: its two users are two user ids. Run it as root. `unshare -r`"
            " does not help: it gives one id only, and nothing would be shown of two users."
        )
    probe = subprocess.run([*_UNSHARE, "true"], capture_output=True, text=True)
    if probe.returncode:
        return (
            f"This machine allows no namespaces ({probe.stderr.strip()}). Run the soak outside of"
            " a container, or in one with CAP_SYS_ADMIN."
        )
    return ""


def _has_many_ids() -> bool:
    """Return whether root here may become any user, as it may not below `unshare -r`."""
    ranges = [line.split() for line in Path("/proc/self/uid_map").read_text().splitlines()]
    return sum(int(words[2]) for words in ranges) >= 2**16


def enter(arguments: Sequence[str]) -> None:
    """Replace this process by the same command inside; does not return."""
    line = [*_UNSHARE, sys.executable, "-m", "tests.soak", *arguments]
    os.chdir(ROOT)
    os.execvpe(line[0], line, {**os.environ, INSIDE_ENV_VAR: "init"})


def become_init(arguments: Sequence[str]) -> int:
    """Run the soak as a child and reap what nobody else does; returns its exit code."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    make_machine()
    child = subprocess.Popen(
        [sys.executable, "-m", "tests.soak", *arguments],
        env={**os.environ, INSIDE_ENV_VAR: "yes"},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    signal.signal(signal.SIGTERM, lambda *_: child.send_signal(signal.SIGINT))
    while True:
        pid, status = os.wait()
        if pid == child.pid:
            return os.waitstatus_to_exitcode(status)


def make_machine() -> None:
    keep = _needed_folders()
    for top in sorted({Path("/tmp"), *(_closed(folder) for folder in keep)} - {None}):
        assert top is not None
        _empty(top, keep=[folder for folder in keep if top in folder.parents])
    tmpfs("/dev/shm", size="2g", mode=0o1777)
    with socket.socket() as any_socket:
        request = struct.pack("16sh14x", b"lo", _IFF_UP_RUNNING)
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, request)


def tmpfs(folder: str | Path, *, size: str, mode: int = 0o755, uid: int = 0) -> None:
    """Mount an empty file system of this size."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    options = f"size={size},mode={mode:o},uid={uid},gid={uid}"
    _mount("tmpfs", str(folder), "tmpfs", _MS_NOSUID | _MS_NODEV, options)


def bind(source: str | Path, target: str | Path) -> None:
    _mount(str(source), str(target), "", _MS_BIND | _MS_REC, "")


def _needed_folders() -> list[Path]:
    """Of the interpreter, its environment and this repository; none inside another."""
    named = [sys.prefix, sys.base_prefix, str(ROOT), os.path.realpath(sys.executable), *sys.path]
    paths = {Path(name).resolve() for name in named if name and Path(name).exists()}
    folders = {path if path.is_dir() else path.parent for path in paths}
    return sorted(f for f in folders if not any(other in f.parents for other in folders))


def _closed(folder: Path) -> Path | None:
    """The highest folder on the way there that other users may not enter."""
    for top in [*reversed(folder.parents), folder]:
        if not top.stat().st_mode & 0o001:
            if top == folder:
                raise SystemExit(f"other users cannot enter {folder}: chmod o+rx it")
            return top
    return None


def _empty(top: Path, *, keep: list[Path]) -> None:
    handles = [(folder, os.open(folder, os.O_PATH)) for folder in keep]
    # Like /tmp where it is /tmp; a home that may be entered and not written elsewhere.
    tmpfs(top, size="4g", mode=0o1777 if top == Path("/tmp") else 0o755)
    for folder, handle in handles:
        folder.mkdir(parents=True)
        bind(f"/proc/self/fd/{handle}", folder)
        os.close(handle)


def _mount(source: str, target: str, kind: str, flags: int, data: str) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    done = libc.mount(source.encode(), target.encode(), kind.encode(), flags, data.encode())
    if done != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), target)
