"""DeepSpeed's compiled operations in this user's cache: there, being compiled, or still missing."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from llmops_kernel.store.paths import cache

FOLDER_ENV_VAR: Final = "TORCH_EXTENSIONS_DIR"
USUAL_TIME: Final = "usually 1 to 3 minutes, once per machine"
SHARED_MEMORY: Final = "ShareMemCommBuilder"
"""The operation that every ZeRO run on CPUs loads."""
_FOLDERS: Final = {
    SHARED_MEMORY: "*shm_comm*",
    "CPUAdamBuilder": "*cpu_adam*",
    "AsyncIOBuilder": "*async_io*",
}
_LOCK: Final = ".llmops.lock"
_MARK: Final = ".llmops.compiling"
_GPU: Final = Path("/dev/nvidia0")


def ops_folder() -> Path:
    """Return where torch keeps what it compiles; `TORCH_EXTENSIONS_DIR` moves it."""
    return Path(os.environ.get(FOLDER_ENV_VAR) or own_ops_folder(cache()))


def own_ops_folder(cache_root: Path) -> Path:
    """Return the folder of this Python environment.

    In one that is shared torch would compile again at each change of environment, for its headers
    are elsewhere then, and others would find nothing meanwhile.
    """
    environment = hashlib.sha256(sys.prefix.encode()).hexdigest()[:8]
    return cache_root / "torch_extensions" / environment


def lock_file(folder: Path) -> Path:
    """Return the file that is locked while operations are compiled or loaded."""
    return folder / _LOCK


def is_compiled(names: tuple[str, ...], *, folder: Path | None = None) -> bool:
    """Return whether all these operations are in the cache. `names` are DeepSpeed's builders."""
    root = folder or ops_folder()
    return all(any(root.glob(f"{_FOLDERS.get(name, name)}/*.so")) for name in names)


def will_compile() -> bool:
    """Return whether `up` on this machine compiles: DeepSpeed, a compiler and no GPU are there."""
    if is_compiled((SHARED_MEMORY,)) or _GPU.exists():
        return False
    return shutil.which("c++") is not None and find_spec("deepspeed") is not None


@contextmanager
def marked(folder: Path) -> Iterator[None]:
    """Record that operations are compiled meanwhile. The caller holds the lock."""
    mark = folder / _MARK
    with suppress(OSError):  # Only what people read and the compiler's share depend on it.
        mark.write_text(json.dumps({"began_s": time.time(), "pid": os.getpid()}))
    try:
        yield
    finally:
        mark.unlink(missing_ok=True)


def compiler_pid(folder: Path) -> int | None:
    """Return the process that compiles, or whose compilation was killed; None if none is known."""
    pid = _marked_value(folder, "pid")
    return None if pid is None else int(pid)


def compiling_since_s(*, folder: Path | None = None) -> float | None:
    """Return since when (Unix seconds) operations are being compiled; None if no process does."""
    root = folder or ops_folder()
    began_s = _marked_value(root, "began_s")
    return began_s if began_s is not None and _is_locked(lock_file(root)) else None


def _marked_value(folder: Path, name: str) -> float | None:
    try:
        return float(json.loads((folder / _MARK).read_text())[name])
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _is_locked(path: Path) -> bool:
    """Return whether a process holds the lock: a killed one leaves only its mark behind."""
    try:
        with path.open("r") as file:
            fcntl.flock(file.fileno(), fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False
