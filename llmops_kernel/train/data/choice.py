"""Whether the training rows are streamed or held in memory."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from llmops_kernel.config.models.sections import DataConfig
from llmops_kernel.errors import DataError, LLMOpsError
from llmops_kernel.store.files import find

LARGE_BYTES = 64 << 20
"""Files of more than this are streamed: tokenised they would need several times as much memory."""
_READ = frozenset({".jsonl", ".parquet"})
_GLOB = frozenset("*?[")


def is_streamed(data: DataConfig, roots: Sequence[Path]) -> bool:
    """Return whether to stream. Raises DataError where that is wanted of what cannot be streamed.

    Of local data only the sizes are looked at.
    """
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
        if path is not None and _is_saved_by_datasets(path):
            raise DataError(
                f"{source} was saved by `datasets`, in Arrow files, which are not streamed.",
                remedy="write it as Parquet (`to_parquet`), or set data.streaming=false",
            )
        return True
    if data.packing or data.max_rows is not None:
        return False
    if is_table:
        return _is_large_table(source, roots)
    return path is not None and _size(path) > LARGE_BYTES


def _is_large_table(source: str, roots: Sequence[Path]) -> bool:
    from llmops_kernel.tables.files import table_files
    from llmops_kernel.train.data.stream.plan import STREAMED

    try:
        files = table_files(source, roots=roots, hashed=False)
    except LLMOpsError:
        return False  # The one that reads it into memory reports what is wrong.
    if any(file.format not in STREAMED for file in files):
        return False
    # Several files are not read into memory: the ways to do that know single URLs only.
    return (
        len(files) > 1
        or bool(_GLOB & set(source))
        or sum(file.size_bytes for file in files) > LARGE_BYTES
    )


def _is_saved_by_datasets(path: Path) -> bool:
    return (path / "dataset_dict.json").exists() or (path / "state.json").exists()


def _size(path: Path) -> int:
    """Return the bytes of a file or of a folder's files, as far as they could be streamed."""
    if not path.is_dir():
        return path.stat().st_size if path.suffix in _READ else 0
    if _is_saved_by_datasets(path):
        return 0
    return sum(file.stat().st_size for file in path.rglob("*") if file.suffix in _READ)
