"""Finds the files of a table: a file, a folder, a pattern, a URL or a hub id."""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from llmops_kernel.errors import DataError, MissingDependencyError
from llmops_kernel.store.files import find, is_pattern

FORMATS = {
    ".parquet": "parquet",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "json",
    ".csv": "csv",
    ".tsv": "csv",
    ".txt": "text",
    ".arrow": "arrow",
}
"""Format of a file by the end of its name. A `.json` may have a list, or an object in each line."""
ARROW_SCHEMES = frozenset({"s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "hdfs"})
_PACKAGES = {
    **dict.fromkeys(("s3", "s3a"), "s3fs"),
    **dict.fromkeys(("gs", "gcs"), "gcsfs"),
    **dict.fromkeys(("az", "abfs", "abfss"), "adlfs"),
}
_SNIFFED_BYTES = 1024
_HASHED_BYTES = 256 * 1024**2
"""Hashing takes less than half a second up to here; a workspace may not be larger."""


@dataclass(frozen=True)
class TableFile:
    """A file of a table, the same for every process of the run."""

    url: str
    """A path that all nodes see, or a URL."""
    format: str
    """A value of `FORMATS`."""
    size_bytes: int
    version: str
    """Changes when the file's content does, and only then: a hash of it, or an object's ETag. Of a
    file of more than 256 MiB the time of its last change."""
    name: str = ""
    """Below the table's path. Unlike the URL it is the same when Ray unpacks the workspace in
    another folder, as on a new cluster."""


def open_url(url: str) -> tuple[Any, str]:
    """Return a file system with fsspec's interface, and the path in it.

    fsspec's package for a store is used where it is installed, else Arrow's own file system.
    Raises MissingDependencyError, DataError.
    """
    import fsspec

    scheme = url.partition("://")[0] if "://" in url else ""
    package = _PACKAGES.get(scheme, scheme)
    try:
        if scheme in ARROW_SCHEMES and not _is_installed(package):
            from llmops_kernel.tables.stores import arrow_store

            return arrow_store(url)
        files, path = fsspec.core.url_to_fs(url)
    except ImportError as error:
        raise MissingDependencyError(
            f"{url} cannot be opened: {error}", remedy=f"install {package} on the cluster's nodes"
        ) from error
    except ValueError as error:
        raise DataError(f"{url} cannot be opened: {error}", remedy="check the URL") from error
    return files, path


def _is_installed(package: str) -> bool:
    return importlib.util.find_spec(package) is not None


def table_files(
    path: str,
    *,
    roots: Sequence[Path],
    format_name: str = "auto",
    split: str = "",
    hashed: bool = True,
) -> list[TableFile]:
    """Return the table's files, by name. Raises DataError if there are none or one is unknown.

    Relative paths are looked for below `roots`. What is no file and has the form `owner/name`
    is a dataset of the hub. `split` chooses one of a folder that `datasets` has saved. Without
    `hashed` the version of a local file is the time of its last change, so that nothing of it is
    read.
    """
    url = _url_of(path, roots)
    files, inner = open_url(url)
    try:
        infos = _infos(files, inner)
    except FileNotFoundError:
        infos = []
    except OSError as error:
        raise DataError(
            f"{path} cannot be read: {error}", remedy="check the URL and the nodes' credentials"
        ) from error
    root = inner.rpartition("/")[0] if is_pattern(inner) else inner
    infos = _saved(infos, root, split, path)
    candidates = [_file(files, info, url, format_name, root=root, hashed=hashed) for info in infos]
    tables = _without_notes([file for file in candidates if file is not None])
    if not tables:
        raise DataError(
            f"{path} has no tables.",
            remedy="check the path; relative ones start at the workspace folder. Files are"
            f" recognised by {', '.join(FORMATS)}; of a table to score, input.format can say"
            " what they are",
        )
    return sorted(tables, key=lambda file: file.url)


def _saved(infos: list[dict[str, Any]], root: str, split: str, path: str) -> list[dict[str, Any]]:
    """Return the tables of a folder that `datasets` has saved; of another folder all files."""
    inside = {str(info["name"]).removeprefix(root).strip("/"): info for info in infos}
    names = {PurePosixPath(name).name for name in inside}
    if not names & {"state.json", "dataset_dict.json"}:
        return infos
    tables = {
        name: info
        for name, info in inside.items()
        if name.endswith(".arrow") and not PurePosixPath(name).name.startswith("cache-")
    }
    splits = sorted({name.partition("/")[0] for name in tables if "/" in name})
    if "dataset_dict.json" not in names or len(splits) < 2:
        return list(tables.values())
    if split not in splits:
        raise DataError(
            f"{path} has the splits {', '.join(splits)}, which are tables of their own.",
            remedy=f"name one of them, as {path.rstrip('/')}/{splits[0]}",
        )
    return [info for name, info in tables.items() if name.startswith(f"{split}/")]


def is_output(folder: Path) -> bool:
    """Return whether a folder is that of a scoring, or of Spark: parts, and notes beside them.

    Raises DataError where a scoring has not written all parts yet.
    """
    if (folder / "_SUCCESS").exists():
        return True
    if not (folder / "_ledger").exists():
        return False
    raise DataError(
        f"{folder} is the output of a scoring that has not finished.",
        remedy="wait until it has, or finish it with `llmops retry RUN`",
    )


def _without_notes(files: list[TableFile]) -> list[TableFile]:
    """Leave out texts beside tables of other formats, such as a README.txt."""
    tables = [file for file in files if file.format != "text"]
    return tables or files


def _url_of(path: str, roots: Sequence[Path]) -> str:
    if "://" in path:
        return path
    if is_pattern(path):
        base = Path(path).expanduser()
        starts = [base] if base.is_absolute() else [root / path for root in roots]
        return str(
            next((start for start in starts if any(start.parent.glob(start.name))), starts[0])
        )
    file = find(path, roots)
    if file is not None:
        return str(file.resolve())
    if path.count("/") == 1 and not Path(path).suffix and not path.startswith((".", "/", "~")):
        return f"hf://datasets/{path}"
    searched = ", ".join(str(root) for root in roots)
    raise DataError(
        f"The input {path!r} does not exist (looked in {searched}).",
        remedy="check input.path; relative paths start at the workspace folder",
    )


def _infos(files: Any, path: str) -> list[dict[str, Any]]:
    if is_pattern(path):
        return [info for info in files.glob(path, detail=True).values() if info["type"] == "file"]
    info = files.info(path)
    if info["type"] == "file":
        return [info]
    inside = files.find(path, detail=True).values()
    return [entry for entry in inside if not _is_hidden(entry["name"], path)]


def _is_hidden(name: str, folder: str) -> bool:
    """Return True for `_SUCCESS`, `_ledger/...` and the like, as Spark and Arrow leave them out."""
    parts = name[len(folder) :].strip("/").split("/")
    return any(part.startswith(("_", ".")) for part in parts)


def _file(
    files: Any, info: dict[str, Any], below: str, format_name: str, *, root: str, hashed: bool
) -> TableFile | None:
    name = str(info["name"])
    table_format = _format_of(files, name) if format_name == "auto" else format_name
    if table_format is None:
        return None
    size = int(info.get("size") or 0)
    return TableFile(
        url=_full(files, below, name),
        format=table_format,
        size_bytes=size,
        version=f"{size}-{_stamp(info, name, hashed=hashed)}",
        name=PurePosixPath(name).name if name == root else name.removeprefix(root).strip("/"),
    )


def _format_of(files: Any, name: str) -> str | None:
    by_suffix = FORMATS.get(PurePosixPath(name).suffix.lower())
    if by_suffix != "json":
        return by_suffix
    try:
        beginning: bytes = files.cat_file(name, start=0, end=_SNIFFED_BYTES)
    except OSError as error:
        raise DataError(
            f"{name} cannot be read: {error}", remedy="check the file and the nodes' credentials"
        ) from error
    return "json" if beginning.removeprefix(b"\xef\xbb\xbf").lstrip()[:1] == b"[" else "jsonl"


def _full(files: Any, url: str, name: str) -> str:
    """Return the URL of a file that was found below `url`; a path on a disk stays one."""
    scheme, mark, _ = url.partition("://")
    if not mark or "://" in name or scheme.startswith("file"):
        return name
    if scheme in ARROW_SCHEMES and hasattr(files, "url_of"):
        return str(files.url_of(name))
    return f"{scheme}://{name.lstrip('/')}"


def _stamp(info: dict[str, Any], name: str, *, hashed: bool) -> str:
    tag = info.get("ETag") or info.get("etag")
    if tag:
        return str(tag)
    local = Path(name)
    if hashed and int(info.get("size") or 0) <= _HASHED_BYTES and local.is_file():
        with local.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()[:16]
    return str(info.get("mtime") or info.get("LastModified") or info.get("created") or "")
