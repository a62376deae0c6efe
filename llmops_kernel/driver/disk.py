"""Errors of a file system in one sentence, also when many files failed alike."""

from __future__ import annotations

import errno
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

_FULL = (errno.ENOSPC, errno.EDQUOT)
_FULL_TEXT = re.compile(r"no space left on device|disk quota exceeded|os error 28\b", re.IGNORECASE)


def is_disk_full(error: BaseException) -> bool:
    """Return whether the error, or one that it was raised from, is about a full disk.

    Libraries in other languages (safetensors) raise errors of their own, with the text alone.
    """
    return any(
        (isinstance(cause, OSError) and cause.errno in _FULL) or bool(_FULL_TEXT.search(str(cause)))
        for cause in _chain(error)
    )


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield current
        current = current.__cause__ or current.__context__


def reason(error: BaseException) -> str:
    """Return "No space left on device (README.md and 7 more files)"."""
    if isinstance(error, shutil.Error) and error.args and isinstance(error.args[0], list):
        return _describe_failed_copies(error.args[0])
    if isinstance(error, OSError) and error.strerror:
        name = f" ({Path(os.fsdecode(error.filename)).name})" if error.filename else ""
        return f"{error.strerror}{name}"
    return str(error)


def _describe_failed_copies(failed: list[tuple[str, str, str]]) -> str:
    """Describe what `shutil.copytree` raises: (source, target, text) of each file not copied."""
    texts = list(dict.fromkeys(_plain(text) for _, _, text in failed))
    first = Path(failed[0][0]).name
    num_others = len(failed) - 1
    files = (
        first
        if not num_others
        else f"{first} and {num_others} more file{'s' if num_others > 1 else ''}"
    )
    return f"{'; '.join(texts[:2])} ({files})"


def _plain(text: str) -> str:
    """Return `[Errno 28] No space left on device: '/a' -> '/b'` without its number and paths."""
    return re.sub(r"^\[Errno \d+\] ", "", text).partition(": '")[0]
