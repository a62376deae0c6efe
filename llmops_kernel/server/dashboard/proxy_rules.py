"""Rules of the proxy to a Ray Dashboard: paths, headers, redirects. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from urllib.parse import unquote, urljoin, urlsplit

from llmops_kernel.errors import LLMOpsError

SAFE_METHODS = frozenset({"GET", "HEAD"})
_TO_RAY = (
    *("Accept", "Accept-Encoding", "Accept-Language", "If-None-Match", "If-Modified-Since"),
    *("If-Range", "Range"),
)
_TO_RAY_WITH_BODY = ("Content-Type", "Content-Length")
_TO_BROWSER = (
    *("Accept-Ranges", "Cache-Control", "Content-Disposition", "Content-Encoding"),
    *("Content-Language", "Content-Length", "Content-Range", "ETag", "Expires"),
    *("Last-Modified", "Retry-After", "Vary"),
)
DATA_POLICY = (
    "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:; frame-ancestors 'self'"
)
"""Policy of every answer of a cluster: even as a page in its own tab it runs no script."""
_TEXT = "text/plain; charset=utf-8"
# A drawing is Ray's flame graph; below the policy above its scripts do not run.
_TYPES = {
    "application/json": "application/json",
    "image/svg+xml": "image/svg+xml",
    "image/png": "image/png",
    "application/octet-stream": "application/octet-stream",
}
# Ours: Ray has no use for them, and they may open the Jupyter server.
_NOT_FOR_RAY = frozenset({"token", "_xsrf", "no_track_activity"})
# Ray hides environment variables from clients that look like a browser, and accepts changes only
# from clients that do not.
_BROWSER_AGENT = "Mozilla/5.0 (llmops-kernel)"
_CLIENT_AGENT = "llmops-kernel"
_CLOSED = {
    "api/v0/logs/stream": (
        "Ray's log streams are not proxied: Ray leaks a connection for each reader that"
        " disconnects, until its state API no longer answers"
    ),
    "api/v0/delay": (
        "This request is not proxied: it would block the cluster's dashboard for the requested time"
    ),
    "test/dump": (
        "This request is not proxied: it would write a memory dump to the disk of the head"
    ),
}


class ProxyRefusal(LLMOpsError):
    """The request does not pass."""

    def __init__(self, message: str, *, remedy: str = "", status: int = 400) -> None:
        super().__init__(message, remedy=remedy)
        self.status = status


def target_path(path: str, query: str) -> str:
    """Return path and query for Ray. `path` is still encoded, relative to the dashboard.

    Raises ProxyRefusal for whatever could mean another path than it seems to.
    """
    decoded = unquote(path)
    parts = decoded.split("/")
    is_odd = (
        unquote(decoded) != decoded  # Encoded twice: who decodes once more sees another path.
        or decoded.count("/") != path.count("/")
        or any(part in (".", "..") or not part for part in parts[:-1])
        or parts[-1] in (".", "..")
        or any(ord(char) < 32 or char in "\\\x7f" for char in decoded)
    )
    # A URL has them encoded: as they are they cannot be passed on.
    is_raw = any(not "!" <= char <= "~" or char == "#" for char in path + query)
    if (path and is_odd) or is_raw:
        raise ProxyRefusal(f"{path!r} is not a path of the Ray Dashboard")
    _refuse_closed(decoded)
    pairs = [pair for pair in query.split("&") if pair and _name(pair) not in _NOT_FOR_RAY]
    return f"/{path}?{'&'.join(pairs)}" if pairs else f"/{path}"


def request_headers(
    incoming: Mapping[str, str], extra_headers: Mapping[str, str], *, method: str
) -> dict[str, str]:
    """Return only the headers that Ray needs, and `extra_headers` for access to it."""
    is_safe = method in SAFE_METHODS
    names = _TO_RAY if is_safe else (*_TO_RAY, *_TO_RAY_WITH_BODY)
    headers = {name: incoming[name] for name in names if name in incoming}
    # httpx would else ask for encodings of its own, which the browser may not know.
    headers.setdefault("Accept-Encoding", "identity")
    return {**headers, "User-Agent": _BROWSER_AGENT if is_safe else _CLIENT_AGENT, **extra_headers}


def response_headers(
    incoming: Mapping[str, str], *, url: str, base: str, prefix: str
) -> Iterable[tuple[str, str]]:
    """Return what may pass: of the headers the listed ones, and no type that a browser runs.

    A redirect stays only if it leads to a path below `prefix`.
    """
    for name in _TO_BROWSER:
        if name in incoming:
            yield name, incoming[name]
    yield "Content-Type", _inert_type(incoming.get("Content-Type", ""))
    if location := _own_location(incoming.get("Location", ""), url=url, base=base, prefix=prefix):
        yield "Location", location


def _inert_type(content_type: str) -> str:
    """Return the type if nothing runs it, else plain text; of what is no text, bytes."""
    kind = content_type.partition(";")[0].strip().lower()
    is_text = kind.startswith("text/") or kind.endswith(("xml", "html", "script", "+json"))
    return _TYPES.get(kind, _TEXT if is_text else _TYPES["application/octet-stream"])


def _own_location(location: str, *, url: str, base: str, prefix: str) -> str:
    """Return the address of a redirect; empty for any other target."""
    if not location or any(ord(char) < 32 or char == "\\" for char in location):
        return ""
    target, home = urlsplit(urljoin(url, location)), urlsplit(base)
    root = home.path.rstrip("/") + "/"
    if (target.scheme, target.netloc) != (home.scheme, home.netloc) or not target.path.startswith(
        root
    ):
        return ""
    rest = target.path.removeprefix(root).lstrip("/")
    try:
        # A browser takes `%2e%2e` for `..`, which would lead out of `prefix`.
        target_path(rest, "")
    except ProxyRefusal:
        return ""
    query = f"?{target.query}" if target.query else ""
    fragment = f"#{target.fragment}" if target.fragment else ""
    return f"{prefix}{rest}{query}{fragment}"


def _refuse_closed(decoded: str) -> None:
    for closed, reason in _CLOSED.items():
        if f"{decoded}/".startswith(f"{closed}/"):
            raise ProxyRefusal(
                reason,
                remedy="the log of a run is in its own panel, and `llmops logs RUN` prints it",
                status=501,
            )


def _name(pair: str) -> str:
    return unquote(pair.partition("=")[0])
