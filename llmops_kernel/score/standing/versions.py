"""Which version of a model or an adapter is in a folder or behind a URL, without reading it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from llmops_kernel.tables.files import open_url

_KINDS = frozenset(
    {".safetensors", ".bin", ".pt", ".gguf", ".json", ".model", ".jinja", ".txt", ".py"}
)
"""Of weights, configs, tokenizers, chat templates and code: all that a loaded model is made of."""
_NOT_THE_MODEL = frozenset({"trainer_state.json", "training_args.bin"})
_STAMPS = ("ETag", "etag", "mtime", "LastModified", "last_modified", "created")
Mark = tuple[str, int, str]


def model_version(source: str) -> str:
    """Return twelve hex digits of the files' names, sizes and times of change.

    Empty for a hub id, whose revision says what it is, and where the files cannot be listed: the
    engine says what is wrong with them.
    """
    try:
        marks = sorted(_behind_url(source) if "://" in source else _in_folder(Path(source)))
    except Exception:  # Each kind of store has errors of its own.
        return ""
    return hashlib.sha256(repr(marks).encode()).hexdigest()[:12] if marks else ""


def _in_folder(folder: Path) -> Iterator[Mark]:
    for file in folder.iterdir() if folder.is_dir() else ():
        if _is_of_model(file.name) and file.is_file():
            stat = file.stat()
            yield file.name, stat.st_size, str(stat.st_mtime_ns)


def _behind_url(url: str) -> Iterator[Mark]:
    if url.startswith("hf://"):
        return
    files, path = open_url(url)
    for name, info in files.find(path, detail=True).items():
        if _is_of_model(PurePosixPath(name).name):
            stamp = next((str(info[key]) for key in _STAMPS if info.get(key)), "")
            yield name, int(info.get("size") or 0), stamp


def _is_of_model(name: str) -> bool:
    is_known = PurePosixPath(name).suffix.lower() in _KINDS and name not in _NOT_THE_MODEL
    return is_known and not name.startswith((".", "_"))
