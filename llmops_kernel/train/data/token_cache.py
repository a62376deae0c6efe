"""Tokenised rows, kept by content, so that the next run of the same rows finds them."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import date
from functools import lru_cache
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from llmops_kernel.config import objective_rows, row_formats
from llmops_kernel.config.models.sections import DataConfig
from llmops_kernel.config.row_formats import Use
from llmops_kernel.errors import DataError
from llmops_kernel.models import answer_ends, answer_spans
from llmops_kernel.store.files import least_used, write_whole
from llmops_kernel.tables import files as table_files
from llmops_kernel.train.data.examples import Example, Tokenised
from llmops_kernel.train.data.sources import Row, Source

LIMIT_BYTES = 2 << 30
_WORTH_BYTES = 64 << 10
"""Rows of smaller files are tokenised as fast as they are found."""
_CODE = (
    Path(__file__).parent,
    Path(table_files.__file__).parent,
    Path(row_formats.__file__),
    Path(objective_rows.__file__),
    Path(answer_ends.__file__),
    Path(answer_spans.__file__),
)


class TokenCache:
    """The kept rows below `cache`, a folder that may be deleted at any time.

    Of more than `limit_bytes` those that were not used for the longest time are deleted.
    """

    def __init__(self, cache: Path, *, limit_bytes: int = LIMIT_BYTES) -> None:
        self._folder, self._limit = cache / "tokens", limit_bytes

    def read(self, key: str) -> Tokenised | None:
        """Return the rows of a key; None where there are none or they cannot be read."""
        path = self._path(key)
        try:
            # Not as a path: numpy leaves the file open when it is not an archive.
            with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
                rows = _from_arrays(arrays)
            os.utime(path)
        except Exception:  # An archive with wrong bytes raises many unrelated types.
            return None
        return rows

    def write(self, key: str, rows: Tokenised) -> None:
        """Keep the rows. A disk that is full or read-only costs the next run time, nothing else."""
        with suppress(OSError):
            content = _to_bytes(rows)
            if len(content) > self._limit:
                return
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            write_whole(self._path(key), content)
            for path in least_used(self._folder.glob("*.npz"), limit_bytes=self._limit):
                path.unlink(missing_ok=True)

    def _path(self, key: str) -> Path:
        return self._folder / f"{key}.npz"


class KeyOf:
    """The key of a source's rows: all that decides which tokens come out of them."""

    def __init__(self, source: Source, *, data: DataConfig, tokenizer: Any) -> None:
        is_file = source.path is not None and source.path.is_file()
        self._path = source.path if is_file else None
        self._tokenizer = tokenizer
        self._rest = {
            "source": source.name,  # It is named in what is wrong with a broken row.
            "limit": data.max_rows,
            "format": data.format,
            "columns": data.columns,
            "loss_on": data.loss_on,
            "max_length": data.max_length,
            "long_texts": data.long_texts,
            "on_error": data.on_error,
        }
        self._stamp = self._read_stamp()

    def key(self) -> str | None:
        """Return the key; None where rows are not kept: no file, or a small one."""
        if self._path is None or self._stamp is None or self._stamp[0] < _WORTH_BYTES:
            return None
        tokenizer = fingerprint(self._tokenizer)
        if tokenizer is None:
            return None
        try:
            with self._path.open("rb") as file:
                content = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError:
            return None  # Whoever reads the rows reports it.
        facts = {**self._rest, "content": content, "tokenizer": tokenizer, "code": _code()}
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()

    def key_of(self, formatted: Iterable[Row | DataError], unreadable: Sequence[str]) -> str | None:
        """Return the key of rows as a hook has formatted them: which code did it does not matter.

        `unreadable`: what is wrong with those that no hook was called for.

        None where they are not to be kept: few rows, or such that cannot be written as JSON.
        """
        sha, size = hashlib.sha256(), 0
        try:
            for row in formatted:
                broken = isinstance(row, DataError)
                text = json.dumps([row.message] if isinstance(row, DataError) else row).encode()
                sha.update(b"%d %d " % (broken, len(text)))
                sha.update(text)
                size += len(text)
        except (TypeError, ValueError):
            return None
        tokenizer = fingerprint(self._tokenizer) if size >= _WORTH_BYTES else None
        if tokenizer is None:
            return None
        facts = {**self._rest, "rows": sha.hexdigest(), "unreadable": list(unreadable)}
        facts |= {"tokenizer": tokenizer, "code": _code()}
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()

    def unchanged(self) -> bool:
        """Return whether the file is still the one whose key was asked for."""
        return self._stamp is not None and self._read_stamp() == self._stamp

    def _read_stamp(self) -> tuple[int, int, int] | None:
        if self._path is None:
            return None
        try:
            info = self._path.stat()
        except OSError:
            return None
        return info.st_size, info.st_mtime_ns, info.st_ino


def fingerprint(tokenizer: Any) -> str | None:
    """Return a hash of a tokenizer's rules; None for one in Python, whose code may do anything."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        return None
    template = tokenizer.chat_template
    parts = [
        type(tokenizer).__name__,
        backend.to_str(),
        json.dumps(template),
        json.dumps(tokenizer.special_tokens_map, default=str, sort_keys=True),
    ]
    if "strftime_now" in parts[2]:  # Templates that write the day into each chat.
        parts.append(date.today().isoformat())
    return _digest(part.encode() for part in parts)


def code_files() -> list[Path]:
    """Return the files of our own that decide which tokens come out of rows."""
    return [
        file
        for place in _CODE
        for file in (sorted(place.rglob("*.py")) if place.is_dir() else [place])
    ]


@lru_cache(maxsize=1)
def _code() -> str:
    """Return a hash of the code that makes tokens from rows, and of its libraries' versions."""
    import pyarrow
    import tokenizers
    import transformers

    versions = [module.__version__ for module in (pyarrow, tokenizers, transformers)]
    return _digest([*(file.read_bytes() for file in code_files()), *(v.encode() for v in versions)])


def _digest(parts: Iterable[bytes]) -> str:
    sha = hashlib.sha256()
    for part in parts:
        sha.update(len(part).to_bytes(8, "big"))
        sha.update(part)
    return sha.hexdigest()


def _to_bytes(rows: Tokenised) -> bytes:
    facts = {
        "num_rows": rows.num_rows,
        "num_cut": rows.num_cut,
        "num_empty": rows.num_empty,
        "num_split": rows.num_split,
        "num_apart": rows.num_apart,
        "num_chats": rows.num_chats,
        "broken": rows.broken,
        "uses": [[*use, count] for use, count in rows.uses.items()],
        "unused": rows.unused,
    }
    file = BytesIO()
    np.savez(
        file,
        ids=_joined([example.input_ids for example in rows.examples]),
        labels=_joined([example.labels for example in rows.examples]),
        lengths=np.array([len(example.input_ids) for example in rows.examples], np.int64),
        facts=np.frombuffer(json.dumps(facts).encode(), np.uint8),
    )
    return file.getvalue()


def _joined(lists: list[list[int]]) -> Any:
    count = sum(map(len, lists))
    return np.fromiter((token for tokens in lists for token in tokens), np.int32, count)


def _from_arrays(arrays: Any) -> Tokenised:
    facts = json.loads(arrays["facts"].tobytes())
    ends = np.cumsum(arrays["lengths"])[:-1]
    ids, labels = np.split(arrays["ids"], ends), np.split(arrays["labels"], ends)
    return Tokenised(
        [Example(a.tolist(), b.tolist()) for a, b in zip(ids, labels, strict=True)],
        num_cut=int(facts["num_cut"]),
        num_empty=int(facts["num_empty"]),
        broken=tuple(facts["broken"]),
        num_rows=int(facts["num_rows"]),
        num_split=int(facts["num_split"]),
        num_apart=int(facts["num_apart"]),
        num_chats=int(facts["num_chats"]),
        is_kept=True,
        uses={Use(name, use): int(count) for name, use, count in facts["uses"]},
        unused=tuple(facts["unused"]),
    )
