"""The sources of rows that a data config names: where they are, and their rows."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Any, get_args

from llmops_kernel.config.models.sections import DataConfig, RowFormat
from llmops_kernel.errors import DataError, LLMOpsError
from llmops_kernel.store.files import find, is_pattern
from llmops_kernel.tables.files import FORMATS, TableFile, is_output, open_url, table_files
from llmops_kernel.tables.formats.lines import not_json

Row = dict[str, Any]
LARGE_BYTES = 64 << 20
"""Sources of more than this are streamed: tokenised they would need several times as much
memory."""


class Source:
    """Rows by the name that a data config gives them: a file, folder, pattern, URL or hub id.

    It is looked for once, below `roots`; its files are listed once, when they are first needed.
    """

    def __init__(self, name: str, roots: Sequence[Path], split: str = "train") -> None:
        self.name, self.roots, self.split = name, roots, split
        self.is_url = "://" in name
        self.is_pattern = is_pattern(name)
        self.path = None if self.is_url else find(name, roots)
        """Its path on this node; None for URLs, hub ids and what does not exist."""

    @property
    def is_hub_id(self) -> bool:
        """Return whether the hub is asked for its rows."""
        is_elsewhere = self.is_url or self.is_pattern or _looks_like_file(self.name)
        return self.path is None and not is_elsewhere

    @cached_property
    def files(self) -> list[TableFile]:
        """The files of its split. Raises DataError if there are none."""
        files = table_files(self.name, roots=self.roots, split=self.split, hashed=False)
        return files_of_split(files, self.split, name=self.name, folder=self.path)

    @cached_property
    def streamed_bytes(self) -> int | None:
        """The size of its files; None if they cannot all be streamed, and for hub ids."""
        from llmops_kernel.train.data.stream.reader import can_stream

        if self.path is None and not (self.is_url or self.is_pattern):
            return None
        try:
            files = self.files
        except LLMOpsError:
            return None  # `rows` reports what is wrong.
        return sum(file.size_bytes for file in files) if all(map(can_stream, files)) else None

    @property
    def is_large(self) -> bool:
        """Return whether its rows are streamed where the config leaves that open."""
        if self.is_url or self.is_pattern:
            size = self.streamed_bytes
            # Several files are not read into memory: the ways to do that know single URLs only.
            is_several = size is not None and (self.is_pattern or len(self.files) > 1)
            return is_several or (size or 0) > LARGE_BYTES
        # Its size first: most data is small, and its files need no further look.
        if self.path is None or _size(self.path) <= LARGE_BYTES:
            return False
        return (self.streamed_bytes or 0) > LARGE_BYTES

    def check_streams(self) -> None:
        """Raise DataError for a hub id, whose rows are not streamed."""
        is_named = self.is_url or self.is_pattern or self.path is not None
        if not is_named and not Path(self.name).suffix:
            raise DataError(
                f"{self.name!r} is not a file or folder, and hub ids are not streamed.",
                remedy="name its files as hf://datasets/owner/name/*.parquet, or set"
                " data.streaming=false",
            )

    def fetch(self) -> None:
        """Download a data set of the hub; this process reads it from the disk. Raises DataError."""
        _hub_set(self.name, self.split)

    def load(
        self, limit: int | None = None, *, broken: list[str] | None = None, nulls: bool = False
    ) -> list[Row]:
        """Return all rows (at most `limit`). Raises DataError, also if there are none.

        `broken` and `nulls` as in `rows`.
        """
        rows = list(islice(self.rows(broken=broken, nulls=nulls), limit))
        if not rows:
            raise DataError(
                f"{self.name} has no rows.", remedy="check the file, or data.train in the config"
            )
        return rows

    def rows(self, *, broken: list[str] | None = None, nulls: bool = False) -> Iterator[Row]:
        """Return the rows, read as they are needed. Raises DataError, with the row's number.

        With a list `broken`, rows that cannot be read are left out and what is wrong is added to
        it. With `nulls` empty values of a CSV are missing ones; hooks get them as they are.
        """
        if self._is_table():
            return _table_rows(self, broken, nulls=nulls)
        if self.is_url:
            return _from_url(self.name, broken)
        if self.path is not None and self.path.is_dir():
            return _from_folder(self.path, self.split)
        if self.path is not None:
            return _from_file(self.path, self.name, broken)
        if _looks_like_file(self.name):
            searched = ", ".join(str(root) for root in self.roots)
            raise DataError(
                f"Data file {self.name!r} does not exist (looked in {searched}).",
                remedy="check data.train and data.eval; relative paths start at the workspace"
                " folder",
            )
        return iter(_hub_set(self.name, self.split))

    def _is_table(self) -> bool:
        """Return whether `tables` reads it: other formats, patterns, and folders behind a URL.

        Raises DataError, MissingDependencyError.
        """
        if self.path is None and self.is_pattern:
            return True
        if self.path is None and not self.is_url:
            return False
        suffix = PurePosixPath(self.name).suffix.lower()
        if self.path is not None and self.path.is_dir():
            return is_output(self.path)
        if suffix in _ALONE:
            return False
        if suffix == ".json":
            place = self.name if self.path is None else str(self.path)
            files = table_files(place, roots=[], hashed=False)
            return any(file.format == "json" for file in files)
        if suffix in FORMATS or not self.is_url:
            return suffix in FORMATS
        store, inner = open_url(self.name)
        return bool(store.isdir(inner))


class DataSources:
    """The sources of a data config: those of the training rows, and that of evaluation rows."""

    def __init__(self, data: DataConfig, roots: Sequence[Path]) -> None:
        self._data = data
        self.train = [
            Source(source.path, roots, source.train_split or data.train_split)
            for source in data.sources
        ]
        self.eval = None if data.eval is None else Source(data.eval, roots, data.eval_split)

    @property
    def on_hub(self) -> list[Source]:
        """Return those that the hub is asked for."""
        every = [*self.train, *([] if self.eval is None else [self.eval])]
        return [source for source in every if source.is_hub_id]

    @cached_property
    def is_streamed(self) -> bool:
        """Whether the training rows are streamed. Raises DataError if they must be and cannot.

        With `streaming: auto` several sources are streamed if together they are large; one that
        cannot be streamed keeps the others in memory. For local data only the sizes are read.
        """
        data = self._data
        if data.format not in get_args(RowFormat):  # Of an objective, which reads all rows first.
            return False
        if data.streaming is True:
            for source in self.train:
                source.check_streams()
            return True
        if data.streaming is False or data.packing or data.max_rows is not None:
            return False
        if not data.is_mixture:
            return self.train[0].is_large
        sizes = [source.streamed_bytes for source in self.train]
        known_sizes = [size for size in sizes if size is not None]
        return len(known_sizes) == len(sizes) and sum(known_sizes) > LARGE_BYTES


def _looks_like_file(name: str) -> bool:
    return name.startswith(("/", ".", "~")) or Path(name).suffix in FORMATS


def _size(path: Path) -> int:
    """Return the bytes of a file or of a folder's files."""
    if not path.is_dir():
        return path.stat().st_size
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())


# --- Single files, folders and data sets of the hub ---


def _from_file(path: Path, source: str, broken: list[str] | None) -> Iterator[Row]:
    if path.suffix == ".parquet":
        return _parquet_rows(path, source, broken)
    if path.suffix in {".jsonl", ".ndjson", ".json"}:
        return _file_rows(path, source, broken)
    raise DataError(
        f"{source}: files ending in {path.suffix or 'nothing'} are not read.",
        remedy=f"give rows as one of: {', '.join(FORMATS)}",
    )


def _file_rows(path: Path, source: str, broken: list[str] | None) -> Iterator[Row]:
    with path.open("rb") as file:
        yield from _json_rows(file, source, broken)


def _json_rows(lines: Iterable[bytes], source: str, broken: list[str] | None) -> Iterator[Row]:
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            yield json_row(line, number, source)
        except DataError as error:
            if broken is None:
                raise
            broken.append(error.message)


def json_row(line: bytes, number: int | str, source: str) -> Row:
    """Return the row of a line of JSON. Raises `DataError` with its number, or where it is."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        problem, remedy = not_json(line, error)
        raise DataError(f"{source}, row {number}: {problem}.", remedy=remedy) from error
    if not isinstance(row, dict):
        raise DataError(
            f"{source}, row {number}: a {type(row).__name__} where an object is needed.",
            remedy='write the row as {"field": value, ...}',
        )
    return row


def _parquet_rows(
    path: Any, source: str, broken: list[str] | None, filesystem: Any = None
) -> Iterator[Row]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    number = 1
    try:
        for batch in pq.ParquetFile(path, filesystem=filesystem).iter_batches():
            yield from _batch_rows(batch, number, source, broken)
            number += batch.num_rows
    except (pa.ArrowException, OSError) as error:
        raise DataError(
            f"{source} cannot be read as Parquet: {error}",
            remedy="check that the file is complete: `python -m pyarrow.parquet` or re-export it",
        ) from error


def _batch_rows(batch: Any, first: int, source: str, broken: list[str] | None) -> list[Row]:
    """Return the rows; one by one if some text is not UTF-8, which Parquet does not check."""
    try:
        rows: list[Row] = batch.to_pylist()
    except UnicodeDecodeError:
        rows = []
        for number in range(batch.num_rows):
            try:
                rows += batch.slice(number, 1).to_pylist()
            except UnicodeDecodeError as error:
                message = (
                    f"{source}, row {first + number}: text that is not UTF-8 ({error.reason})."
                )
                if broken is None:
                    raise DataError(message, remedy="write the table's text as UTF-8") from error
                broken.append(message)
    return rows


def _from_folder(path: Path, split: str) -> Iterator[Row]:
    """Read a folder saved by `datasets` (save_to_disk), or one that holds data files."""
    import datasets

    try:
        if (path / "dataset_dict.json").exists() or (path / "state.json").exists():
            loaded = datasets.load_from_disk(str(path))
            if isinstance(loaded, datasets.DatasetDict):
                loaded = _pick_split(loaded, split, str(path))
        else:
            loaded = _pick_split(datasets.load_dataset(str(path)), split, str(path))
    except (OSError, ValueError) as error:
        raise DataError(
            f"Folder {path} cannot be read as a data set: {error}",
            remedy="save it with datasets' save_to_disk, or name a .jsonl or .parquet file",
        ) from error
    return iter(loaded)


def _pick_split(loaded: Any, split: str, source: str) -> Any:
    if split not in loaded:
        raise DataError(
            f"{source} has no split {split!r}.",
            remedy=f"set data.train_split or data.eval_split to one of: {', '.join(loaded)}",
        )
    return loaded[split]


@lru_cache(maxsize=8)
def _hub_set(source: str, split: str) -> Any:
    import datasets

    try:
        return datasets.load_dataset(source, split=split)
    except Exception as error:  # the hub client raises many unrelated types
        raise DataError(
            f"Data set {source!r} (split {split!r}) cannot be loaded from the hub: {error}",
            remedy="check the id and the split, HF_TOKEN for private sets, HF_HUB_OFFLINE, and the"
            " network of the cluster's nodes; or name a file",
        ) from error


def _from_url(source: str, broken: list[str] | None) -> Iterator[Row]:
    filesystem, path = open_url(source)
    try:
        if path.endswith(".parquet"):
            yield from _parquet_rows(path, source, broken, filesystem)
            return
        with filesystem.open(path, "rb") as file:
            yield from _json_rows(file, source, broken)
    except OSError as error:
        raise DataError(
            f"{source} cannot be read: {error}",
            remedy="check the URL and the node's credentials for it",
        ) from error


# --- Tables ---


_PART_ROWS = 1000
_ALONE = frozenset({".jsonl", ".ndjson", ".parquet"})
"""Single files of these are read without a look at all of their lines first."""


def with_nulls(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row of a CSV, in which a value that is missing is an empty one."""
    return {name: value if value != "" else None for name, value in row.items()}


def _table_rows(source: Source, broken: list[str] | None, *, nulls: bool) -> Iterator[Row]:
    # Here, for most runs read JSONL and would wait for the import.
    from llmops_kernel.tables.reading import iter_parts, read_part

    for part in iter_parts(source.files, part_rows=_PART_ROWS, first_row=1):
        for row in read_part(part).rows:
            if not row.error:
                yield with_nulls(row.values) if nulls and part.format == "csv" else row.values
            elif broken is None:
                raise DataError(
                    f"{source.name}: {row.error}.",
                    remedy="correct or delete this row, or set data.on_error=skip",
                )
            else:
                broken.append(f"{source.name}: {row.error}.")


# --- Find the files of a split in a folder by their names ---
# The rule is that of `datasets` 5.0 (`data_files.py`), so that a folder has the same training
# rows whether it is held in memory or streamed: `data/NAME-00000-of-00001.*`, else folders with
# the name of a split, else files with one (`train.jsonl`, `my_test-1.parquet`). Where no name
# says anything all files are training rows.


_WORDS = {
    "train": ("train", "training"),
    "validation": ("validation", "valid", "dev", "val"),
    "test": ("test", "testing", "eval", "evaluation"),
}
_SHARD = re.compile(r"data/(\w+(?:\.\w+)*)-\d{5}-of-\d{5}[^/]*\.[^/]*")
_BETWEEN = "[-._ 0-9]"
"""Separators between the words of a name."""
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
    if is_pattern(source):
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
