"""List files that a half-written relative path may mean."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

_MOST = 200
_HIDDEN = ("__pycache__", "node_modules")


def paths_below(
    folder: Path, prefix: str, *, suffixes: tuple[str, ...]
) -> Iterator[tuple[str, str]]:
    """Yield (relative path, description) of folders and of files with these extensions.

    Nothing outside `folder` is listed, whatever `prefix` says.
    """
    above, slash, _ = prefix.strip("\"'").rpartition("/")
    if slash and not above:
        return
    try:
        start = (folder / above).resolve()
        if "\0" in above or not start.is_relative_to(folder.resolve()):
            return
        with os.scandir(start) as found:
            entries = sorted(found, key=lambda entry: entry.name)[:_MOST]
    except (OSError, ValueError, RuntimeError):
        return
    for entry in entries:
        if entry.name.startswith(".") or entry.name in _HIDDEN:
            continue
        name = f"{above}/{entry.name}" if above else entry.name
        if _is_folder(entry):
            yield f"{name}/", "folder"
        elif entry.name.endswith(suffixes) and suffixes:
            yield name, _size(entry)


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False  # A link to itself.


def _size(entry: os.DirEntry[str]) -> str:
    try:
        kib = entry.stat().st_size / 1024
    except OSError:
        return "file"
    return f"{kib / 1024:.1f} MiB" if kib >= 1024 else f"{kib:.1f} KiB"
