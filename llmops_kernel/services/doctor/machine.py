"""Checks of the machine: processors, memory, disks, folders, network."""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
from pathlib import Path

from llmops_kernel.services.doctor.findings import Finding, Level, fail, ok, warn
from llmops_kernel.services.folders import cache, home, private_folder, readable_by_others
from llmops_kernel.views.format import byte_size

GIB = 2**30
_LOCALHOST = "add the line `127.0.0.1 localhost` to /etc/hosts"
# The demo was measured at below 4 GiB; two workers of it want twice that.
MEMORY_WANTED_BYTES = 6 * GIB
MEMORY_NEEDED_BYTES = 3 * GIB
# Ray reserves object memory there and falls back to slow disk files below it.
SHARED_MEMORY_WANTED_BYTES = GIB // 2
DISK_WANTED_BYTES = 5 * GIB
DISK_NEEDED_BYTES = 1 * GIB


def processors() -> Finding:
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    name, flags = _cpu()
    known = [flag for flag in ("avx2", "avx512f", "avx512_bf16", "amx_bf16") if flag in flags]
    seen = f"{usable} usable cores, {name or 'unknown processor'} ({', '.join(known) or 'no AVX2'})"
    if (usable or 1) < 2:
        return warn("processors", seen, "give the machine or container two cores or more")
    return ok("processors", seen)


def _cpu() -> tuple[str, set[str]]:
    name, flags = "", set[str]()
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "model name":
                name = value.strip()
            elif key.strip() == "flags":
                flags = set(value.split())
                break
    except OSError:
        pass  # Not Linux: the name stays unknown.
    return name, flags


def memory() -> Finding:
    import psutil

    found = psutil.virtual_memory()
    limit = _container_limit()
    total = min(found.total, limit) if limit else found.total
    free = min(found.available, total)
    seen = f"{byte_size(free)} free of {byte_size(total)}"
    if limit and limit < found.total:
        seen += " (limit of this container)"
    remedy = "close other programs, or choose a smaller model or micro batch size"
    if free < MEMORY_NEEDED_BYTES:
        return fail("memory", seen, remedy)
    return warn("memory", seen, remedy) if free < MEMORY_WANTED_BYTES else ok("memory", seen)


def _container_limit() -> int | None:
    for file in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            return int(Path(file).read_text())
        except (OSError, ValueError):
            continue  # Absent, or the word "max".
    return None


def shared_memory() -> Finding:
    path = Path("/dev/shm")
    if not path.is_dir():
        return ok("/dev/shm", "does not exist; Ray uses its temp folder instead")
    free = shutil.disk_usage(path).free
    seen = f"{byte_size(free)} free"
    if free < SHARED_MEMORY_WANTED_BYTES:
        return warn("/dev/shm", seen, "start the container with --shm-size=2g or more")
    return ok("/dev/shm", seen)


def disk_space() -> Finding:
    """Check the folders that grow: runs, models, Ray's session."""
    folders = {"runs": home(), "cache": cache(), "temp": Path(tempfile.gettempdir())}
    free = {name: shutil.disk_usage(_existing(path)).free for name, path in folders.items()}
    seen = ", ".join(
        f"{byte_size(free[name])} free for {name} ({folders[name]})" for name in folders
    )
    tightest = min(free, key=lambda name: free[name])
    variable = {"runs": "LLMOPS_HOME", "cache": "LLMOPS_CACHE", "temp": "TMPDIR"}[tightest]
    remedy = f"free some space in {folders[tightest]}, or point {variable} at a larger disk"
    level = _level(free[tightest], wanted=DISK_WANTED_BYTES, needed=DISK_NEEDED_BYTES)
    return Finding("disk", level, seen, "" if level is Level.OK else remedy)


def _level(value: float, *, wanted: float, needed: float) -> Level:
    if value < needed:
        return Level.FAIL
    return Level.WARN if value < wanted else Level.OK


def _existing(path: Path) -> Path:
    """Return the folder itself or its nearest parent that exists."""
    return next(each for each in (path, *path.parents) if each.exists())


def folders() -> Finding:
    """Check that files can be written in the home folder and the cache."""
    for variable, path in (("LLMOPS_HOME", home()), ("LLMOPS_CACHE", cache())):
        try:
            private_folder(path)
            with tempfile.TemporaryFile(dir=path) as file:
                file.write(b"x")
                file.flush()
        except OSError as error:
            seen = f"{path} cannot be written: {error.strerror}"
            remedy = f"set {variable} to a folder of yours, or correct its permissions"
            return fail("folders", seen, remedy)
    if readable_by_others(home()):
        seen = f"other users of this machine can read {home()}: runs, logs, packages"
        return warn("folders", seen, f"chmod 700 {home()}, unless it is shared on purpose")
    return ok("folders", f"{home()} and {cache()} can be written")


def loopback() -> Finding:
    """Check 127.0.0.1, on which Ray's processes communicate."""
    try:
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
            with socket.create_connection(("127.0.0.1", port), timeout=5):
                pass
        resolved = socket.gethostbyname("localhost")
    except OSError as error:
        remedy = f"allow connections on the loopback interface (lo), and {_LOCALHOST}"
        return fail("loopback", f"127.0.0.1 does not answer: {error}", remedy)
    if not resolved.startswith("127."):
        return fail(
            "loopback",
            f"localhost is {resolved}",
            _LOCALHOST,
        )
    return ok("loopback", f"127.0.0.1 answers, e.g. on port {port}")


def proxies() -> Finding:
    """Check that no_proxy excludes 127.0.0.1: clients send even loopback traffic to a proxy."""
    names = ("http_proxy", "https_proxy", "grpc_proxy", "all_proxy")
    found = [n for n in names if os.environ.get(n) or os.environ.get(n.upper())]
    if not found:
        return ok("proxy", "none set")
    excluded = os.environ.get("no_proxy") or os.environ.get("NO_PROXY") or ""
    if "127.0.0.1" in excluded or excluded.strip() == "*":
        return ok("proxy", f"{', '.join(found)} set, 127.0.0.1 excluded")
    remedy = "export no_proxy=127.0.0.1,localhost,$no_proxy"
    return warn("proxy", f"{', '.join(found)} set, 127.0.0.1 not excluded", remedy)
