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


@dataclass
class LoadedFiles:
    """Size and modification time of each loaded module's file, as they were after the import."""

    _stamps: dict[str, tuple[int, int] | None] = field(default_factory=dict)
    _result: str = ""
    _valid_until_s: float = 0.0

    @classmethod
    def of_this_process(cls) -> LoadedFiles:
        """A child imports `llmops_kernel` anew, so its files do not count."""
        paths = {
            file
            for name, module in list(sys.modules.items())
            if name.partition(".")[0] not in ("llmops_kernel", "__main__")
            and isinstance(file := getattr(module, "__file__", None), str)
            and os.path.isabs(file)
        }
        return cls({path: _stamp(path) for path in sorted(paths)})

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
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size
