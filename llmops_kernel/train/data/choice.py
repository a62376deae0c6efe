"""The choice between streaming the training rows and holding them in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from llmops_kernel.config.models.sections import DataConfig
from llmops_kernel.errors import DataError, LLMOpsError
from llmops_kernel.store.files import find

if TYPE_CHECKING:
    from llmops_kernel.tables.files import TableFile


LARGE_BYTES = 64 << 20
"""Files of more than this are streamed: tokenised they would need several times as much memory."""
_GLOB = frozenset("*?[")


def is_streamed(data: DataConfig, roots: Sequence[Path]) -> bool:
    """Return whether to stream. Raises DataError if `streaming: true` and the data cannot be.

    For local data only the sizes are read.
    """
    if not isinstance(data.train, str):
        return is_mixture_streamed(
            data, roots, alone=is_streamed, bytes_of=_bytes, large_bytes=LARGE_BYTES
        )
    source = data.train
    if data.streaming is False:
        return False
    is_table = "://" in source or bool(_GLOB & set(source))
    path = None if is_table else find(source, roots)
    if data.streaming is True:
        if not is_table and path is None and not Path(source).suffix:
            raise DataError(
                f"{source!r} is not a file or folder, and hub ids are not streamed.",
                remedy="name its files as hf://datasets/owner/name/*.parquet, or set"
                " data.streaming=false",
            )
        return True
    if data.packing or data.max_rows is not None:
        return False
    if is_table:
        return _is_large_table(source, roots, data.train_split)
    # Its size first: most data is small, and its files need no further look.
    if path is None or _size(path) <= LARGE_BYTES:
        return False
    return (_local_bytes(source, roots, data.train_split) or 0) > LARGE_BYTES


def _bytes(source: str, roots: Sequence[Path], split: str) -> int | None:
    """Return the bytes of a source that can be streamed, else None."""
    if "://" not in source and not _GLOB & set(source):
        return _local_bytes(source, roots, split)
    files = _streamed_files(source, roots, split)
    return None if files is None else sum(file.size_bytes for file in files)


def _local_bytes(source: str, roots: Sequence[Path], split: str = "train") -> int | None:
    """Return the bytes of local training files; None if they are not all of a streamed format."""
    path = find(source, roots)
    if path is None:
        return None
    files = _streamed_files(source, roots, split)
    return None if files is None else sum(file.size_bytes for file in files)


def _is_large_table(source: str, roots: Sequence[Path], split: str) -> bool:
    files = _streamed_files(source, roots, split)
    if files is None:
        return False
    # Several files are not read into memory: the ways to do that know single URLs only.
    return (
        len(files) > 1
        or bool(_GLOB & set(source))
        or sum(file.size_bytes for file in files) > LARGE_BYTES
    )


def _streamed_files(source: str, roots: Sequence[Path], split: str) -> list[TableFile] | None:
    """Return the training files; None if one of them cannot be streamed."""
    from llmops_kernel.train.data.splits import split_files
    from llmops_kernel.train.data.stream.reader import can_stream

    try:
        files = split_files(source, split, roots=roots)
    except LLMOpsError:
        return None  # The one that reads it into memory reports what is wrong.
    return files if all(map(can_stream, files)) else None


def _size(path: Path) -> int:
    """Return the bytes of a file or of a folder's files."""
    if not path.is_dir():
        return path.stat().st_size
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())


# --- Streaming of several sources: all of them, or none ---


Alone = Callable[[DataConfig, Sequence[Path]], bool]
"""Returns whether a single source is streamed; raises DataError where it must be and cannot."""
BytesOf = Callable[[str, Sequence[Path], str], int | None]
"""Bytes of a source's split that can be streamed; None if it cannot be, such as a hub id."""


def is_mixture_streamed(
    data: DataConfig,
    roots: Sequence[Path],
    *,
    alone: Alone,
    bytes_of: BytesOf,
    large_bytes: int,
) -> bool:
    """Return whether to stream. Raises DataError if `streaming: true` and the data cannot be.

    With `streaming: auto` all sources together decide, and one that cannot be streamed
    keeps the others in memory as well.
    """
    if data.streaming is True:
        return all([alone(data.of(source), roots) for source in data.sources])
    if data.streaming is False or data.packing or data.max_rows is not None:
        return False
    splits = [(source.path, source.train_split or "train") for source in data.sources]
    sizes = [bytes_of(path, roots, split) for path, split in splits]
    known_sizes = [size for size in sizes if size is not None]
    return len(known_sizes) == len(sizes) and sum(known_sizes) > large_bytes
