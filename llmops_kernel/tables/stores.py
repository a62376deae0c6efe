"""Arrow's own file systems of object stores and HDFS: they need no package besides pyarrow.

fsspec's package for a store (s3fs, gcsfs, adlfs) is used where it is installed. It is not required,
for s3fs cannot be installed beside current releases of what the workers have.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit

from fsspec.implementations.arrow import ArrowFSWrapper

from llmops_kernel.errors import DataError

_GCS_RETRIES = timedelta(seconds=60)
"""Arrow's default is 15 minutes, in which a run without credentials would say nothing."""
_PIECE_BYTES = 4 * 2**20
_SETTINGS = ("AWS_", "AZURE_", "GOOGLE_", "STORAGE_EMULATOR_HOST", "HADOOP_", "CLASSPATH")
"""Beginnings of the names of the variables that say where a store is and who asks."""
_HADOOP = (
    "install Java and a Hadoop client on the cluster's nodes, with JAVA_HOME, HADOOP_HOME and"
    " CLASSPATH (`hadoop classpath --glob`) in their environment"
)
Env = Mapping[str, str]
Settings = tuple[tuple[str, str], ...]


class ArrowStore(ArrowFSWrapper):
    """An Arrow file system with the interface of fsspec's."""

    cachable = False  # fsspec's cache would tell two of them apart by their addresses in memory.

    def __init__(self, files: Any, url_of: Callable[[str], str]) -> None:
        super().__init__(files)
        self.url_of = url_of
        """Return the URL of a path."""

    def ls(self, path: str, detail: bool = False, **options: Any) -> list[Any]:
        """Return what is in a folder. Raises FileNotFoundError."""
        try:
            entries: list[Any] = super().ls(path, detail=detail, **options)
        except OSError as error:
            if "No such file" in str(error):  # Arrow's Google store raises no kind of its own.
                raise FileNotFoundError(str(error)) from error
            raise
        return entries

    def find(
        self,
        path: str,
        maxdepth: int | None = None,
        withdirs: bool = False,
        detail: bool = False,
        **_: Any,
    ) -> Any:
        """Return all files below a path.

        In one listing, which is faster than fsspec's one for each folder, and finds more: Arrow's
        listing of a folder of Google's store leaves out the folders in it.
        """
        from pyarrow import fs

        top = self._strip_protocol(path).rstrip("/")
        selector = fs.FileSelector(top, recursive=True, allow_not_found=True)
        try:
            infos = [self._make_entry(info) for info in self.fs.get_file_info(selector)]
        except OSError:
            if not self.isfile(top):
                raise
            infos = []
        if not infos and self.isfile(top):
            infos = [self.info(top)]
        entries = {
            info["name"]: info
            for info in sorted(infos, key=lambda info: str(info["name"]))
            if (withdirs or info["type"] == "file")
            and (maxdepth is None or info["name"].removeprefix(top).count("/") <= maxdepth)
        }
        return entries if detail else list(entries)

    def put_file(self, lpath: str, rpath: str, **_: Any) -> None:
        """Write a file's bytes. Object stores have no folders, so that none is made above it."""
        if not os.path.isdir(lpath):
            path = self._strip_protocol(rpath)
            with open(lpath, "rb") as source, self.fs.open_output_stream(path) as target:
                shutil.copyfileobj(source, target, _PIECE_BYTES)

    def cat_file(
        self, path: str, start: int | None = None, end: int | None = None, **options: Any
    ) -> bytes:
        """Return a file's bytes from `start` up to `end`.

        ArrowFSWrapper opens a stream that cannot seek for a range that begins at 0, then seeks.
        """
        data: bytes = super().cat_file(path, start, end, **{"seekable": True, **options})
        return data


def arrow_store(url: str, env: Env = os.environ) -> tuple[ArrowStore, str]:
    """Return the file system of an object store or of HDFS, and the path in it.

    Credentials come from the environment, under the names that each vendor's own tools read.
    Raises DataError.
    """
    scheme, _, rest = url.partition("://")
    host, _, path = rest.partition("/")
    settings = tuple((name, env[name]) for name in sorted(env) if name.startswith(_SETTINGS))
    try:
        files = _OPENERS[scheme](scheme, host, settings)
    except (OSError, ValueError) as error:
        raise DataError(
            f"{url} cannot be opened: {error}",
            remedy=_HADOOP if scheme == "hdfs" else "check the URL and the nodes' credentials",
        ) from error
    inner = f"/{path}" if scheme == "hdfs" else f"{host.partition('@')[0]}/{path}"
    return files, inner.rstrip("/")


@lru_cache(maxsize=16)
def _s3(scheme: str, bucket: str, settings: Settings) -> ArrowStore:
    from pyarrow import fs

    env = dict(settings)
    endpoint = env.get("AWS_ENDPOINT_URL_S3") or env.get("AWS_ENDPOINT_URL") or None
    region = env.get("AWS_REGION") or env.get("AWS_DEFAULT_REGION") or None
    if not endpoint and not region:
        region = fs.resolve_s3_region(bucket)
    files = fs.S3FileSystem(endpoint_override=endpoint, region=region)
    return ArrowStore(files, lambda name: f"{scheme}://{name}")


@lru_cache(maxsize=16)
def _gcs(scheme: str, bucket: str, settings: Settings) -> ArrowStore:
    from pyarrow import fs

    emulator = dict(settings).get("STORAGE_EMULATOR_HOST", "")
    options: dict[str, Any] = {"retry_time_limit": _GCS_RETRIES}
    if emulator:
        kind, _, host = emulator.rpartition("://")
        options |= {"anonymous": True, "scheme": kind or "http", "endpoint_override": host}
    return ArrowStore(fs.GcsFileSystem(**options), lambda name: f"{scheme}://{name}")


@lru_cache(maxsize=16)
def _azure(scheme: str, host: str, settings: Settings) -> ArrowStore:
    from pyarrow import fs

    container, _, server = host.partition("@")
    files = fs.AzureFileSystem(**azure_options(server, dict(settings)))

    def url_of(name: str) -> str:
        inside = name.removeprefix(container).lstrip("/")
        return f"{scheme}://{host}/{inside}" if server else f"{scheme}://{name}"

    return ArrowStore(files, url_of)


def azure_options(server: str, env: Env) -> dict[str, str]:
    """Return the arguments of Arrow's file system for `account.dfs.core.windows.net`, or for the
    account that the environment names. Raises ValueError if neither does.
    """
    pieces = env.get("AZURE_STORAGE_CONNECTION_STRING", "").split(";")
    parts = dict(piece.partition("=")[::2] for piece in pieces if piece)
    account = (
        server.partition(".")[0]
        or env.get("AZURE_STORAGE_ACCOUNT_NAME")
        or env.get("AZURE_STORAGE_ACCOUNT")
        or parts.get("AccountName")
    )
    if not account:
        raise ValueError("no storage account is named: set AZURE_STORAGE_ACCOUNT_NAME")
    key = (
        env.get("AZURE_STORAGE_ACCOUNT_KEY")
        or env.get("AZURE_STORAGE_KEY")
        or parts.get("AccountKey")
    )
    token = env.get("AZURE_STORAGE_SAS_TOKEN") or parts.get("SharedAccessSignature")
    options = {"account_name": account}
    if key:
        options["account_key"] = key
    elif token:
        options["sas_token"] = token
    if endpoint := parts.get("BlobEndpoint"):
        address = urlsplit(endpoint)
        for service in ("blob", "dfs"):
            options[f"{service}_storage_authority"] = address.netloc
            options[f"{service}_storage_scheme"] = address.scheme
    return options


@lru_cache(maxsize=16)
def _hdfs(scheme: str, host: str, settings: Settings) -> ArrowStore:
    from pyarrow import fs

    server, _, port = host.partition(":")
    files = fs.HadoopFileSystem(server or "default", int(port or 0))
    return ArrowStore(files, lambda name: f"{scheme}://{host}{name}")


_OPENERS = {
    "s3": _s3,
    "s3a": _s3,
    "gs": _gcs,
    "gcs": _gcs,
    "az": _azure,
    "abfs": _azure,
    "abfss": _azure,
    "hdfs": _hdfs,
}
