"""Our own package as Ray has unpacked it, carried from one cluster of this host to the next.

Ray unpacks it for each cluster: 850 files, beside which Python then writes what it has compiled.
That is up to a second of a first submission, as ext4 looks at each file that was removed in the
last minutes, such as those of the cluster before, when it makes a new one.
"""

from __future__ import annotations

import marshal
import os
import secrets
import shutil
import sys
import zipfile
import zlib
from contextlib import suppress
from pathlib import Path

import psutil

from llmops_kernel.errors import LLMOpsError
from llmops_kernel.store.package.packages import Package, library

_UNPACKED = Path("runtime_resources", "py_modules_files")
"""Where Ray 2.60 unpacks `py_modules`, below a session's folder. One that is there it uses."""
_COMPILED = "__pycache__"
_HEADER_BYTES = 16  # Of a .pyc file: PEP 552.


def keep(session: Path, *, cache: Path) -> None:
    """Move the package out of a session whose processes have ended, in place of an older one."""
    with suppress(OSError):
        folders = [path.parent for path in (session / _UNPACKED).glob("*/llmops_kernel")]
        if not folders:
            return
        newest = max(folders, key=lambda path: path.stat().st_mtime)
        cache.mkdir(mode=0o700, exist_ok=True)
        if cache.is_symlink():
            return
        _remove_cut_code(newest)
        for path in cache.iterdir():
            if path.name != newest.name:
                _remove(path)
        # Fails if another cluster has brought the same package.
        newest.rename(cache / newest.name)


def find(packages: Path, *, cache: Path) -> Package | None:
    """Return our package of today if exactly that is kept, of this boot; remove another one.

    `packages` are the packages of this home.
    """
    # An interrupted removal leaves such a folder.
    for leftover in cache.parent.glob(_trash_path(cache, "*").name):
        shutil.rmtree(leftover, ignore_errors=True)
    if not cache.is_dir():
        return None
    with suppress(LLMOpsError, OSError, zipfile.BadZipFile):
        package = library(packages)
        folder = cache / package.folder
        # What was compiled before a power failure may be cut short, which Python would not notice.
        is_of_this_boot = folder.stat().st_mtime > psutil.boot_time()
        if is_of_this_boot and _files(folder) == _members(package.path):
            return package
    # An older version; or a cleaner of temporary files was at work, or a run.
    with suppress(OSError):
        _remove(cache)
    return None


def hand_over(package: Package, *, cache: Path, session: Path) -> None:
    """Move it to where the session would unpack it. Without it, Ray does as ever."""
    with suppress(OSError):
        (cache / package.folder).rename(session / _UNPACKED / package.folder)


def _remove(path: Path) -> None:
    """Remove a folder so that nobody takes half of it meanwhile."""
    trash = _trash_path(path, secrets.token_hex(4))
    path.rename(trash)
    shutil.rmtree(trash, ignore_errors=True)


def _trash_path(path: Path, token: str) -> Path:
    return path.with_name(f".{path.name}.{token}")


def _remove_cut_code(folder: Path) -> None:
    """Remove byte code that Python did not write to its end, and what others have written.

    On a full disk Python 3.11 leaves half a file, and then fails at each import of the module.
    """
    for path in folder.rglob(f"{_COMPILED}/*"):
        try:
            if path.name.endswith(f".{sys.implementation.cache_tag}.pyc"):
                marshal.loads(path.read_bytes()[_HEADER_BYTES:])
                continue
        except (OSError, EOFError, ValueError, TypeError):
            pass
        path.unlink()


def _files(folder: Path) -> dict[str, tuple[int, int, bool]]:
    """Return size, CRC-32 and whether it is executable of each file but compiled ones."""
    files = {}
    for place, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name != _COMPILED]
        links = [name for name in folders if Path(place, name).is_symlink()]
        for name in names + links:  # A link is no file of ours: reading a folder is an error.
            path = Path(place, name)
            data = path.read_bytes()
            is_executable = bool(path.stat().st_mode & 0o100)
            files[str(path.relative_to(folder))] = (len(data), zlib.crc32(data), is_executable)
    return files


def _members(archive: Path) -> dict[str, tuple[int, int, bool]]:
    with zipfile.ZipFile(archive) as file:
        return {
            info.filename: (info.file_size, info.CRC, bool(info.external_attr >> 16 & 0o100))
            for info in file.infolist()
        }
