"""Compares the files that the fork server has loaded with what is on disk now."""

from __future__ import annotations

import os
import sys
import time
from dataclasses import dataclass, field

# The workers of one group are forked within this time; an edit and a submit take longer.
_REUSE_S = 0.2
# On a slow file system a comparison is used longer, so that it takes a tenth of the time at most.
_REUSE_FACTOR = 10

Facts = tuple[tuple[str, int, int, int, int, int], ...]
"""For each file: name, size, inode, device, times of modification and change (ns)."""


def facts_of(folder: str | os.PathLike[str]) -> Facts:
    """Return what changes with any file of a folder. Raises OSError.

    A user can set a file's times, except that of its last change. They are opened: only then does
    NFS ask the server for them.
    """
    facts = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_file():
                with open(entry.path, "rb") as file:
                    info = os.fstat(file.fileno())
                times = (info.st_mtime_ns, info.st_ctime_ns)
                facts.append((entry.name, info.st_size, info.st_ino, info.st_dev, *times))
    return tuple(sorted(facts))


@dataclass
class LoadedFiles:
    """Size and modification time of each loaded module's file, as they were after the import."""

    _stamps: dict[str, tuple[int, int] | None] = field(default_factory=dict)
    _result: str = ""
    _valid_until_s: float = 0.0

    @classmethod
    def of_this_process(cls) -> LoadedFiles:
        """Return the loaded files, but for those of `llmops_kernel`, which a child imports anew."""
        files = cls()
        files.add_new()
        return files

    def add_new(self) -> None:
        """Add the files of modules that have been loaded since."""
        paths = {
            file
            for name, module in list(sys.modules.items())
            if name.partition(".")[0] not in ("llmops_kernel", "__main__")
            and isinstance(file := getattr(module, "__file__", None), str)
            and os.path.isabs(file)
        }
        self._stamps |= {path: _stamp(path) for path in sorted(paths - self._stamps.keys())}

    def __len__(self) -> int:
        return len(self._stamps)

    def changed(self) -> str:
        """Return a file that was edited in place since it was loaded; empty: none."""
        began_s = time.monotonic()
        if not self._result and began_s >= self._valid_until_s:
            for path, stamp in self._stamps.items():
                if _stamp(path) != stamp:
                    self._result = path  # It stays: this process has the old one for ever.
                    break
            now_s = time.monotonic()
            self._valid_until_s = now_s + max(_REUSE_S, _REUSE_FACTOR * (now_s - began_s))
        return self._result


def _stamp(path: str) -> tuple[int, int] | None:
    try:
        info = os.stat(path)
    except OSError:
        return None
    return info.st_mtime_ns, info.st_size
