"""Starts a store's server and makes a bucket in it, without the code that is tested."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyarrow import fs

from tests.checks.tracked import ROOT

FOLDER = Path(os.environ.get("LLMOPS_TEST_STORES") or ROOT / ".venv" / "stores")
"""What `make stores` makes."""
BUCKET = "bucket"
_HOST = "127.0.0.1"
_START_S = 120.0
_ACCOUNT = "devstoreaccount1"
# The account and key of every Azurite, from its README.
_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="


@dataclass(frozen=True)
class Store:
    """A server that runs."""

    scheme: str
    env: dict[str, str]
    """What a user would set to reach it."""
    files: Any
    """Arrow's file system of it, to put files there."""

    def names(self, folder: str) -> dict[str, int]:
        """Return the bytes of each object below a folder, by name."""
        found = self.files.get_file_info(
            fs.FileSelector(f"{BUCKET}/{folder}", recursive=True, allow_not_found=True)
        )
        below = len(f"{BUCKET}/{folder}/")
        return {one.path[below:]: one.size for one in found if one.type == fs.FileType.File}

    def put(self, name: str, data: bytes) -> str:
        """Write an object; return its URL."""
        with self.files.open_output_stream(f"{BUCKET}/{name}") as stream:
            stream.write(data)
        return f"{self.scheme}://{BUCKET}/{name}"


@contextmanager
def s3(folder: Path) -> Iterator[Store]:
    """Run moto's server of S3."""
    with _running(folder, lambda port: [_binary("moto_server"), "-H", _HOST, "-p", port]) as port:
        env = {
            "AWS_ENDPOINT_URL": f"http://{_HOST}:{port}",
            "AWS_ACCESS_KEY_ID": "a-key",
            "AWS_SECRET_ACCESS_KEY": "a-secret",
            "AWS_REGION": "us-east-1",
        }
        files = fs.S3FileSystem(
            access_key="a-key",
            secret_key="a-secret",
            region="us-east-1",
            endpoint_override=env["AWS_ENDPOINT_URL"],
            allow_bucket_creation=True,
        )
        files.create_dir(BUCKET)
        yield Store("s3", env, files)


@contextmanager
def gcs(folder: Path) -> Iterator[Store]:
    """Run a server of Google Cloud Storage."""
    command = [_binary("gcp-storage-emulator"), "start", "--in-memory", "-H", _HOST]
    command += ["--default-bucket", BUCKET, "--port"]
    with _running(folder, lambda port: [*command, port]) as port:
        files = fs.GcsFileSystem(anonymous=True, scheme="http", endpoint_override=f"{_HOST}:{port}")
        yield Store("gs", {"STORAGE_EMULATOR_HOST": f"http://{_HOST}:{port}"}, files)


@contextmanager
def azure(folder: Path) -> Iterator[Store]:
    """Run Azurite, Microsoft's own emulator of Azure's blobs."""
    node = shutil.which("node") or str(ROOT / ".venv" / "bin" / "node")
    command = [node, _binary("azurite-blob", "node_modules/.bin"), "--inMemoryPersistence"]
    # Arrow's client asks for an API that is newer than this Azurite.
    command += ["--disableTelemetry", "--skipApiVersionCheck", "--blobHost", _HOST, "--blobPort"]
    with _running(folder, lambda port: [*command, port]) as port:
        address = f"{_HOST}:{port}"
        connection = (
            f"DefaultEndpointsProtocol=http;AccountName={_ACCOUNT};AccountKey={_KEY};"
            f"BlobEndpoint=http://{address}/{_ACCOUNT};"
        )
        files = fs.AzureFileSystem(
            account_name=_ACCOUNT,
            account_key=_KEY,
            blob_storage_authority=address,
            dfs_storage_authority=address,
            blob_storage_scheme="http",
            dfs_storage_scheme="http",
        )
        files.create_dir(BUCKET)
        yield Store("az", {"AZURE_STORAGE_CONNECTION_STRING": connection}, files)


def _binary(name: str, folder: str = "bin") -> str:
    path = FOLDER / folder / name
    if not path.exists():
        pytest.skip(f"{name} is not installed: make stores")
    return str(path)


@contextmanager
def _running(folder: Path, command: Callable[[str], list[str]]) -> Iterator[str]:
    """Run a server until the end of the block; yield its port."""
    log = folder / "server.log"
    for _ in range(5):  # Another process may have taken the port in between.
        port = _free_port()
        with log.open("wb") as output:
            process = subprocess.Popen(
                command(str(port)), cwd=folder, stdout=output, stderr=subprocess.STDOUT
            )
        try:
            if _answers(process, port):
                yield str(port)
                return
        finally:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(10)
            process.kill()
            process.wait()
    raise AssertionError(log.read_text(errors="replace"))


def _answers(process: subprocess.Popen[bytes], port: int) -> bool:
    deadline = time.monotonic() + _START_S
    while time.monotonic() < deadline and process.poll() is None:
        with suppress(OSError), socket.create_connection((_HOST, port), timeout=1):
            return True
        time.sleep(0.05)
    return False


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind((_HOST, 0))
        port: int = listener.getsockname()[1]
        return port
