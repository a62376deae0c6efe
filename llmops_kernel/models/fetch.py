"""Copies a model or an adapter from a URL onto this node, once."""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path, PurePosixPath
from typing import Any

from filelock import FileLock

from llmops_kernel.errors import ModelError
from llmops_kernel.store.paths import cache
from llmops_kernel.tables.files import open_url

_MARKER = "config.json", "adapter_config.json"
_HUB = "hf://"


def local_folder(source: str, root: Path | None = None) -> str:
    """Return a folder of this node with the files of a URL; anything else is returned as it is.

    Safe among processes: one copies, the others wait; a copy is whole or absent. Files that have
    changed behind the URL are copied again. Raises ModelError, DataError,
    MissingDependencyError.
    """
    if "://" not in source or source.startswith(_HUB):
        return source
    files, path = open_url(source)
    try:
        infos = files.find(path, detail=True)
    except Exception as error:  # Each kind of store has errors of its own.
        raise _failed(source, error) from error
    if not any(PurePosixPath(name).name in _MARKER for name in infos):
        raise ModelError(
            f"{source} has no {' or '.join(_MARKER)}.",
            remedy="name the folder of a model or of a LoRA adapter",
        )
    folder = (root or cache()) / "fetched" / _key(source, infos)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(str(folder) + ".lock"):
        if not folder.exists():
            _copy(source, files, path, list(infos), folder)
    return str(folder)


def _key(source: str, infos: dict[str, Any]) -> str:
    marks = [
        (name, info.get("size"), str(info.get("ETag") or info.get("mtime") or ""))
        for name, info in sorted(infos.items())
    ]
    return hashlib.sha256(repr((source, marks)).encode()).hexdigest()[:16]


def _copy(source: str, files: Any, path: str, names: list[str], folder: Path) -> None:
    scratch = folder.with_name(f".{folder.name}.{os.getpid()}")
    shutil.rmtree(scratch, ignore_errors=True)
    try:
        for name in names:
            target = scratch / PurePosixPath(name).relative_to(path)
            target.parent.mkdir(parents=True, exist_ok=True)
            files.get_file(name, str(target))
        scratch.rename(folder)
    except Exception as error:
        raise _failed(source, error) from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _failed(source: str, error: Exception) -> ModelError:
    return ModelError(
        f"{source} cannot be copied to this node: {type(error).__name__}: {error}",
        remedy="check the URL, the nodes' credentials and their disk (LLMOPS_CACHE moves the copy)",
    )
