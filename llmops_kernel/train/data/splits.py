"""Find the files of a split in a folder by their names, by the rule of the package `datasets`.

The rule is that of `datasets` 5.0 (`data_files.py`), so that a folder has the same training rows
whether it is held in memory or streamed: `data/NAME-00000-of-00001.*`, else folders with the name
of a split, else files with one (`train.jsonl`, `my_test-1.parquet`). Where no name says anything
all files are training rows.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from llmops_kernel.errors import DataError
from llmops_kernel.tables.files import TableFile

_WORDS = {
    "train": ("train", "training"),
    "validation": ("validation", "valid", "dev", "val"),
    "test": ("test", "testing", "eval", "evaluation"),
}
_SHARD = re.compile(r"data/(\w+(?:\.\w+)*)-\d{5}-of-\d{5}[^/]*\.[^/]*")
_BETWEEN = "[-._ 0-9]"
"""Separators between the words of a name."""
_GLOB = frozenset("*?[")
_CARD = "README.md"
_SAVED, _SAVED_SPLITS = "state.json", "dataset_dict.json"
"""In a folder that `datasets` has saved: a table, or one a split."""


def files_of_split(
    files: Sequence[TableFile], split: str, *, name: str, folder: Path | None
) -> list[TableFile]:
    """Return those of a source's files that are the split. Raises DataError if there are none.

    A single file and the files of a pattern are what they are: only folders are divided. `folder`:
    the source's path on this node, None if it is not on a disk.
    """
    if folder is not None and any((folder / saved).exists() for saved in (_SAVED_SPLITS, _SAVED)):
        only = files[0].name.partition("/")[0]
        if (folder / _SAVED_SPLITS).exists() and only != split:
            raise DataError(
                f"{name} has no split {split!r}.",
                remedy=f"set data.train_split or data.eval_split to {only}",
            )
        return list(files)
    if not _is_folder(files, name):
        return list(files)
    by_split = None if folder is None else _card_splits(files, name, folder)
    if by_split is None:
        by_split = splits_of([file.name for file in files])
    if not by_split:
        return list(files)
    if split not in by_split:
        raise DataError(
            f"{name} has no split {split!r}: by their names its files are {', '.join(by_split)}.",
            remedy="set data.train_split or data.eval_split to one of these, or name the files by"
            f" a pattern, as {name.rstrip('/')}/*.{files[0].format}",
        )
    return [file for file in files if file.name in by_split[split]]


def splits_of(names: Sequence[str]) -> dict[str, list[str]]:
    """Return the names below a folder by split; empty if they do not say.

    A file stands in each split that it is named after.
    """
    return _sharded(names) or _by_folders(names) or _by_file_names(names)


def _sharded(names: Sequence[str]) -> dict[str, list[str]]:
    shards: dict[str, list[str]] = {}
    for name in names:
        if match := _SHARD.fullmatch(name):
            shards.setdefault(match[1], []).append(name)
    return shards


def _by_folders(names: Sequence[str]) -> dict[str, list[str]]:
    return _by_words(
        names,
        rf"(?:^|{_BETWEEN}){{word}}(?:{_BETWEEN}|$)",
        slice(None, -1),
    )


def _by_file_names(names: Sequence[str]) -> dict[str, list[str]]:
    return _by_words(names, rf"(?:^|{_BETWEEN}){{word}}{_BETWEEN}", slice(-1, None))


def _by_words(names: Sequence[str], pattern: str, pieces: slice) -> dict[str, list[str]]:
    """Find splits by words. `pieces`: the parts of a path that are compared."""
    splits = {}
    for split, words in _WORDS.items():
        matcher = re.compile(pattern.replace("{word}", f"(?:{'|'.join(words)})"))
        inside = [name for name in names if any(map(matcher.search, name.split("/")[pieces]))]
        if inside:
            splits[split] = inside
    return splits


def _is_folder(files: Sequence[TableFile], source: str) -> bool:
    if _GLOB & set(source):
        return False
    last = source.rstrip("/").rpartition("/")[2]
    return len(files) != 1 or files[0].name.rpartition("/")[2] != last


def _card_splits(
    files: Sequence[TableFile], source: str, folder: Path
) -> Mapping[str, list[str]] | None:
    """Return the splits that a folder's README.md names, as `datasets` reads them.

    None without one. Those of folders behind a URL are not read: their names decide.
    """
    card = folder / _CARD
    if not card.is_file():
        return None
    if "\nconfigs:" not in card.read_text(errors="replace").partition("\n---")[0]:
        return None
    import datasets

    try:
        by_split = datasets.load_dataset_builder(str(folder)).config.data_files or {}
    except (OSError, ValueError) as error:
        raise DataError(
            f"{source}/{_CARD} does not say which files are a split: {error}",
            remedy="correct its `configs`, or name the files by a pattern",
        ) from error
    paths = {str(Path(file.url).resolve()): file.name for file in files}
    return {
        str(split): [paths[place] for place in map(_resolved, files_) if place in paths]
        for split, files_ in by_split.items()
    }


def _resolved(path: object) -> str:
    return str(Path(str(path)).resolve())
