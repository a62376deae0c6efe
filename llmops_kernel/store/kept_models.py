"""Loaded models that a node keeps on its disk for the next run, each in one file.

A run maps the file into its memory instead of reading the model's own files. What is mapped are
pages of the kernel's page cache: processes share them, a process that writes gets copies of its
own, and under memory pressure the kernel drops them before anything is killed.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

from llmops_kernel.store.files import least_used, private_folder

_STALE_S = 600.0
"""A file that is being written and was not touched for so long: its writer was killed."""
_SPARE_BYTES = 1 << 30
"""Left free on the disk, for checkpoints and outputs."""


@dataclass(frozen=True, kw_only=True)
class KeptModel:
    """A model in the cache."""

    model: str
    """Name of the model in the config."""
    dtype: str
    user: str
    num_bytes: int = 0
    used_s: float = 0.0
    """Unix time at which a run last mapped it."""
    path: Path = field(default=Path(), compare=False)


class KeptModels:
    """The kept models below `cache`, a folder that may be deleted at any time.

    A model's name says whose it is and how it was loaded, its stamp what it was loaded from. Of
    one name only one stamp is kept. The least recently used goes first.
    """

    def __init__(self, cache: Path, *, limit_bytes: int = 0) -> None:
        self.folder, self.limit_bytes = cache / "kept-models", limit_bytes

    def find(self, name: str, stamp: str) -> Path | None:
        """Return the file of that model, and mark it as used; None if there is none."""
        path = self._path(name, stamp)
        try:
            info = path.lstat()
            if not _is_own(self.folder.lstat()) or not _is_own(info):
                return None  # What another user wrote would be executed.
            os.utime(path)
        except OSError:
            return None
        return path

    def has_other(self, name: str, stamp: str) -> bool:
        """Return whether the model was kept from other files than there are now."""
        return any(path != self._path(name, stamp) for path in self._paths_of(name))

    def add(self, name: str, stamp: str, model: KeptModel, write: Callable[[Path], None]) -> str:
        """Keep a model of `about.num_bytes`; return why it is not kept, empty if it is.

        `write` is called with the path of a new file. What it raises is not caught, but leaves
        nothing on the disk.
        """
        try:
            private_folder(self.folder)
            if refusal := self._no_room(model.num_bytes):
                return refusal
            self._make_room(model.num_bytes, name)
            new = self.folder / f"new-{secrets.token_hex(8)}.part"
            try:
                os.close(os.open(new, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
                write(new)
                facts = {key: value for key, value in asdict(model).items() if key != "path"}
                path = self._path(name, stamp)
                path.with_suffix(".json").write_text(json.dumps(facts))
                new.replace(path)
            finally:
                new.unlink(missing_ok=True)
        except OSError as error:
            return error.strerror or str(error)
        return ""

    def all(self) -> tuple[KeptModel, ...]:
        """Return what is kept, the last used first."""
        models = []
        for path in self._paths_of("*"):
            with suppress(OSError, ValueError, TypeError):
                facts, info = json.loads(path.with_suffix(".json").read_text()), path.stat()
                facts |= {"num_bytes": info.st_size, "used_s": info.st_mtime, "path": path}
                models.append(KeptModel(**facts))
        return tuple(sorted(models, key=lambda model: model.used_s, reverse=True))

    def remove(self, path: Path) -> None:
        """Remove a file; processes that have mapped it keep what they see."""
        for each in (path, path.with_suffix(".json")):
            with suppress(OSError):
                each.unlink(missing_ok=True)

    def _no_room(self, num_bytes: int) -> str:
        if num_bytes > self.limit_bytes:
            sizes = f"{num_bytes / 2**30:.1f} GiB, and warm.keep is {self.limit_bytes / 2**30:.1f}"
            return f"it has {sizes} GiB"
        free = shutil.disk_usage(self.folder).free
        if free < num_bytes + _SPARE_BYTES:
            return f"{free / 2**30:.1f} GiB are free on the disk of {self.folder}"
        return ""

    def _make_room(self, num_bytes: int, name: str) -> None:
        """Remove what was loaded from other files, what killed writers left, and the oldest."""
        for path in self._paths_of(name):
            self.remove(path)
        for path in self.folder.glob("new-*.part"):
            with suppress(OSError):
                if time.time() - path.stat().st_mtime > _STALE_S:
                    path.unlink()
        for path in least_used(self._paths_of("*"), limit_bytes=self.limit_bytes - num_bytes):
            self.remove(path)

    def _paths_of(self, name: str) -> Iterator[Path]:
        yield from self.folder.glob(f"{name}.*.pt")

    def _path(self, name: str, stamp: str) -> Path:
        return self.folder / f"{name}.{stamp}.pt"


def _is_own(info: os.stat_result) -> bool:
    """Return whether only this user can have written a file or a folder."""
    regular = stat.S_ISREG(info.st_mode) or stat.S_ISDIR(info.st_mode)
    return regular and info.st_uid == os.getuid() and not info.st_mode & 0o022
