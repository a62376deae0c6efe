"""Uploads packages to a cluster, and explains what blocks an upload."""

from __future__ import annotations

import http.client
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import httpx

from llmops_kernel.errors import ClusterError, LLMOpsError, SubmissionError, WorkspaceError
from llmops_kernel.providers.dashboard import open_http
from llmops_kernel.providers.protocol import Connection
from llmops_kernel.version import SUPPORTED_RAY

MIB: Final = 1024**2
RAY_LIMIT_BYTES: Final = 100 * MIB
"""Ray's `DASHBOARD_CLIENT_MAX_SIZE`, a constant that no setting moves."""
PROBE_BYTES: Final = 8 * MIB
"""Smaller packages are simply sent."""
CHUNK_BYTES: Final = 1 << 18
_ANSWER_S: Final = 1.5
_SECOND_THOUGHT_S: Final = 0.3
_REMEDY: Final = (
    "exclude large files from the workspace (.llmopsignore) and set their path in the config"
    " instead: on a"
    " volume that the pods mount (storage.volumes of the cluster template) or as a URL"
)
_lock = threading.Lock()
_probed: set[tuple[str, int]] = set()


class PackageBody:
    """A file in pieces; can be read again, for a second try."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __iter__(self) -> Iterator[bytes]:
        with self._path.open("rb") as file:
            while chunk := file.read(CHUNK_BYTES):
                yield chunk


def check_size(connection: Connection, *, name: str, size_bytes: int) -> None:
    """Check before the first byte is sent. Raises WorkspaceError.

    The server in front of Ray is asked once per cluster and size, and only for big packages.
    """
    if size_bytes > RAY_LIMIT_BYTES:
        raise too_large_for_ray(name, size_bytes=size_bytes)
    if connection.route is None or size_bytes < PROBE_BYTES:
        return
    # Sizes in steps, so that another version of the same workspace is not asked for again.
    key = (connection.dashboard_url, -(-size_bytes // PROBE_BYTES))
    with _lock:
        if key in _probed:
            return
    if _is_refused(connection, name=name, size_bytes=size_bytes):
        raise too_large_for_way(connection, name=name, size_bytes=size_bytes)
    with _lock:
        _probed.add(key)


def too_large_for_ray(name: str, *, size_bytes: int) -> WorkspaceError:
    return WorkspaceError(
        f"Package {name} has {size_bytes / MIB:,.1f} MiB, and Ray's job server accepts at most"
        f" {RAY_LIMIT_BYTES // MIB} MiB",
        remedy=_REMEDY,
    )


def too_large_for_way(connection: Connection, *, name: str, size_bytes: int) -> WorkspaceError:
    limit = _limit_bytes(connection, name=name, size_bytes=size_bytes)
    limit_text = f" more than about {limit / MIB:,.1f} MiB" if limit else " a body of that size"
    return WorkspaceError(
        f"Package {name} has {size_bytes / MIB:,.1f} MiB, and {_route(connection)} does not accept"
        f"{limit_text}; Ray itself accepts {RAY_LIMIT_BYTES // MIB} MiB",
        remedy=f"{_REMEDY}; or raise the body size limit of the proxy in front of the API server",
    )


def broke_off(
    connection: Connection, *, name: str, size_bytes: int, error: Exception
) -> ClusterError | WorkspaceError | None:
    """Return why an upload was cut off twice; None if its size is not the likely cause."""
    if getattr(error, "code", None) == http.client.REQUEST_ENTITY_TOO_LARGE:
        return too_large_for_way(connection, name=name, size_bytes=size_bytes)
    if connection.route is None or size_bytes < PROBE_BYTES:
        return None
    cause = str(error) or type(error).__name__
    return WorkspaceError(
        f"The connection broke twice while package {name} of {size_bytes / MIB:,.1f} MiB was"
        f" sent through {_route(connection)} ({cause}); smaller requests pass, so it seems to cut"
        f" off large ones",
        remedy=_REMEDY,
    )


def _route(connection: Connection) -> str:
    return connection.route.describe() if connection.route else "the connection to the dashboard"


def _limit_bytes(connection: Connection, *, name: str, size_bytes: int) -> int | None:
    """Return the largest accepted body, to a mebibyte; None if even the smallest is rejected."""
    low, high = 0, size_bytes // MIB
    while high - low > 1:
        middle = (low + high) // 2
        is_refused = _is_refused(connection, name=name, size_bytes=middle * MIB)
        low, high = (low, middle) if is_refused else (middle, high)
    return low * MIB or None


def _is_refused(connection: Connection, *, name: str, size_bytes: int) -> bool:
    """Announce a body of that size and look what comes before it: nothing of it is sent.

    False too for whatever cannot be found out.
    """
    with suppress(OSError, http.client.HTTPException, LLMOpsError, httpx.HTTPError):
        return _announce(connection, name=name, size_bytes=size_bytes) == 413
    return False


def _announce(connection: Connection, *, name: str, size_bytes: int) -> int | None:
    """Return the status that answers the headers alone; None for silence and `100 Continue`."""
    with open_http(connection) as client:
        request = client.build_request("PUT", f"/api/packages/gcs/{name}")
        # As sent: with the credentials of the moment.
        flow = client.auth.sync_auth_flow(request) if client.auth else iter((request,))
        request = next(flow)
    parts = urlsplit(str(request.url))
    if connection.route is not None and connection.route.proxy():
        return None
    port = parts.port or (443 if parts.scheme == "https" else 80)
    line: http.client.HTTPConnection
    if parts.scheme == "https":
        context = connection.route.verify() if connection.route else None
        line = http.client.HTTPSConnection(
            parts.hostname or "", port, context=context, timeout=_ANSWER_S
        )
    else:
        line = http.client.HTTPConnection(parts.hostname or "", port, timeout=_ANSWER_S)
    with closing(line):
        line.putrequest("PUT", parts.path, skip_accept_encoding=True)
        for key, value in request.headers.items():
            if key.lower() not in ("host", "content-length", "accept-encoding"):
                line.putheader(key, value)
        line.putheader("Content-Length", str(size_bytes))
        line.putheader("Expect", "100-continue")
        line.endheaders()
        # After a `100 Continue` http.client would wait for the final response.
        assert line.sock is not None
        reported = _status(line.sock.recv(256))
        if reported != http.client.CONTINUE:
            return reported
        # Some say so before they have looked at the size.
        line.sock.settimeout(_SECOND_THOUGHT_S)
        return _status(line.sock.recv(256))


def _status(start: bytes) -> int | None:
    parts = start.split(b" ", 2)
    return int(parts[1]) if len(parts) > 1 and parts[1].isdigit() else None


# --- Supported Ray releases ---


_RELEASE = re.compile(r"(\d+)\.(\d+)\.(\d+)")


def check_ray_version(reported: Mapping[str, str]) -> None:
    """Raise SubmissionError if the cluster's Ray is of another minor release than ours.

    `reported` is the dashboard's answer; a cluster that reports no version is not refused. The
    client itself may have no Ray, so its own installation is not looked at. A patch release has
    the same modules; train/ray/compat.py checks what it leans on and falls back.
    """
    version = reported.get("ray_version", "")
    if is_supported(version):
        return
    raise SubmissionError(
        f"The cluster runs Ray {version}; this release of llmops-kernel needs Ray {SUPPORTED_RAY}.",
        remedy=f"set ray_version: {SUPPORTED_RAY} and an image with Ray {SUPPORTED_RAY} in the"
        f" cluster template, then `llmops up` again; or install the llmops-kernel release for"
        f" Ray {version}",
    )


def is_supported(version: str) -> bool:
    """Return whether a Ray version is of our minor release; True for an unreadable one."""
    cluster_release, supported_release = _RELEASE.match(version), _RELEASE.match(SUPPORTED_RAY)
    if cluster_release is None or supported_release is None:
        return True
    return cluster_release.groups()[:2] == supported_release.groups()[:2]
