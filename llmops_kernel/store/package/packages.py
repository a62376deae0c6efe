"""Zip packages of a workspace, named by content, as Ray's runtime environment takes them."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from llmops_kernel.errors import WorkspaceError
from llmops_kernel.store.files import private_folder, store_errors
from llmops_kernel.store.package.assets import ASSETS_FILE, Assets
from llmops_kernel.store.package.hashes import HASH_DIGITS, digest_of
from llmops_kernel.store.package.workspace import FileEntry, Workspace, biggest, mebibytes, scan

MAX_UPLOAD_BYTES = 100 * 1024**2
"""Ray's dashboard refuses a larger request body; a constant there (`DASHBOARD_CLIENT_MAX_SIZE`)."""
SMALL_FILE_BYTES = 64 * 1024
_SOURCE_SUFFIXES = (
    *("", ".py", ".pyi", ".pyx", ".sh", ".sql", ".js", ".css", ".html", ".proto"),
    *(".yaml", ".yml", ".toml", ".json", ".cfg", ".ini", ".conf", ".lock"),
    *(".txt", ".md", ".rst", ".jinja", ".jinja2", ".j2"),
)
_COMPRESSED_SUFFIXES = (
    *(".parquet", ".safetensors", ".gguf", ".whl", ".png", ".jpg", ".jpeg"),
    *(".gz", ".zip", ".bz2", ".xz", ".zst"),
)
_FORMAT = "llmops-package-1"
_FOR_LAB = "labextension/"
"""Built into an editable install: of no use to a worker, and new with each build."""
_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Package:
    hash: str
    path: Path
    size_bytes: int

    @property
    def name(self) -> str:
        return f"{self.folder}.zip"

    @property
    def folder(self) -> str:
        """Return the name that Ray gives the folder that it unpacks it to."""
        return f"_ray_pkg_{self.hash}"

    @property
    def uri(self) -> str:
        return f"gcs://{self.name}"


@dataclass(frozen=True, kw_only=True)
class Packages:
    code: Package
    """The `working_dir`: files at the top."""
    assets: Package | None
    """A `py_module`: data and everything large, below one folder `llmops_assets_<hash>/`."""
    library: Package
    """A `py_module`: `llmops_kernel` itself."""


@dataclass(frozen=True, kw_only=True)
class _Member:
    """A file of a package: bytes to write, or a file and what its content must be."""

    executable: bool = False
    sha256_16: str = ""
    size_bytes: int = 0
    source: Path | None = None
    data: bytes = b""


def build(workspace: Workspace, cache: Path) -> Packages:
    """Make the packages below `cache` as `<hash>.zip`, unless they are there already.

    Give `RunStore.packages` as `cache`: `diff` reads old code from there. Raises
    WorkspaceError when a package is larger than Ray takes or a file changes meanwhile.
    """
    code, assets = split(workspace)
    assets_hash = _content_hash(_members(workspace, assets), label="data") if assets else ""
    data_assets = Assets(hash=assets_hash, files=tuple(assets))
    members = _members(workspace, code)
    members[ASSETS_FILE] = _text(data_assets.model_dump_json(indent=1))
    return Packages(
        code=_package(members, cache=cache, label="code"),
        assets=_package(
            _members(workspace, assets),
            cache=cache,
            label="data",
            place=lambda rel: f"{data_assets.folder}/{rel}",
        )
        if assets
        else None,
        library=library(cache),
    )


def split(workspace: Workspace) -> tuple[list[str], list[str]]:
    """Return the paths of the code package and of the assets package."""
    code = [rel for rel, entry in workspace.files.items() if _is_code(rel, entry)]
    return code, sorted(workspace.files.keys() - set(code))


def _is_code(rel: str, entry: FileEntry) -> bool:
    suffix = Path(rel).suffix.lower()
    if suffix == ".py":
        return True  # Whatever its size: it could not be imported from among the assets.
    return suffix in _SOURCE_SUFFIXES and entry.size_bytes < SMALL_FILE_BYTES


def _members(workspace: Workspace, rels: list[str]) -> dict[str, _Member]:
    return {
        rel: _Member(
            executable=entry.executable,
            sha256_16=entry.sha256_16,
            size_bytes=entry.size_bytes,
            source=workspace.root / rel,
        )
        for rel in rels
        for entry in (workspace.files[rel],)
    }


def _text(text: str) -> _Member:
    data = text.encode()
    return _Member(data=data, sha256_16=digest_of(data), size_bytes=len(data))


def library(cache: Path) -> Package:
    """Return a package of this library.

    A file of an editable install may be saved meanwhile: the newer one is used.
    """
    root = Path(__file__).parents[2]
    for last in (False, False, True):
        files = scan(root)
        members = _members(files, [rel for rel in files.files if not rel.startswith(_FOR_LAB)])
        try:
            return _package(
                members, cache=cache, label="llmops_kernel", place=lambda rel: f"{root.name}/{rel}"
            )
        except WorkspaceError:
            if last:
                raise
    raise AssertionError("unreachable")


def _content_hash(members: dict[str, _Member], *, label: str) -> str:
    sha = hashlib.sha256(f"{_FORMAT} {label}\n".encode())
    for rel, member in sorted(members.items()):
        line = json.dumps([rel, member.sha256_16, member.executable])
        sha.update(line.encode() + b"\n")
    return sha.hexdigest()[:HASH_DIGITS]


def _package(
    members: dict[str, _Member], *, cache: Path, label: str, place: Callable[[str], str] = str
) -> Package:
    content = _content_hash(members, label=label)
    path = cache / f"{content}.zip"
    with store_errors("write package", path):
        if path.exists():
            os.utime(path)
        else:
            private_folder(cache)
            _write_zip(path, members, label=label, place=place)
        return Package(hash=content, path=path, size_bytes=path.stat().st_size)


def _write_zip(
    path: Path, members: dict[str, _Member], *, label: str, place: Callable[[str], str]
) -> None:
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        with zipfile.ZipFile(temporary, "x") as archive:
            for rel, member in sorted(members.items()):
                _write_member(archive, place(rel), member)
                assert archive.fp is not None
                if archive.fp.tell() > MAX_UPLOAD_BYTES:
                    raise _too_large(members, label=label)
        if temporary.stat().st_size > MAX_UPLOAD_BYTES:
            raise _too_large(members, label=label)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _write_member(archive: zipfile.ZipFile, name: str, member: _Member) -> None:
    # Fixed time and mode: the same content makes the same bytes on any machine.
    info = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
    info.create_system = 3
    info.external_attr = (0o100755 if member.executable else 0o100644) << 16
    packed = Path(name).suffix.lower() in _COMPRESSED_SUFFIXES
    info.compress_type = zipfile.ZIP_STORED if packed else zipfile.ZIP_DEFLATED
    if member.source is None:
        archive.writestr(info, member.data)
        return
    sha = hashlib.sha256()
    try:
        with member.source.open("rb") as source, archive.open(info, "w") as target:
            while chunk := source.read(_CHUNK_BYTES):
                sha.update(chunk)
                target.write(chunk)
    except FileNotFoundError:
        raise _changed(member.source) from None
    # Else other content would be known by this hash for good.
    if sha.hexdigest()[:HASH_DIGITS] != member.sha256_16:
        raise _changed(member.source)


def _changed(source: Path) -> WorkspaceError:
    return WorkspaceError(
        f"{source} changed while the workspace was being packed.",
        remedy="submit again; if a program keeps writing to it, list it in .llmopsignore",
    )


def _too_large(members: dict[str, _Member], *, label: str) -> WorkspaceError:
    sizes = {rel: member.size_bytes for rel, member in members.items()}
    return WorkspaceError(
        f"The workspace's {label} ({mebibytes(sum(sizes.values()))}) makes a package above the "
        f"{mebibytes(MAX_UPLOAD_BYTES)} that Ray accepts in one upload. Biggest files: "
        f"{biggest(sizes)}.",
        remedy="list what the run does not need in .llmopsignore, or give large data in the "
        "config by an absolute path that the cluster can read, or by an s3://, gs:// or "
        "hdfs:// URL",
    )
