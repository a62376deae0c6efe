"""The table of routes as tests see it: an example request for each route and method."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from jupyter_server.base.handlers import APIHandler
from tornado.web import RequestHandler

from llmops_kernel.server.app import all_routes

METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
SAFE = {"GET", "HEAD"}
RUN, CLUSTER = "r-1", "lab"
_EXAMPLES = ("resume", "abc123")


class Row(NamedTuple):
    method: str
    path: str
    """Relative to the base URL; a run is `r-1`, a cluster `lab`."""


def all_rows() -> list[Row]:
    """What the handlers answer, and nothing of what they only inherit."""
    return [
        Row(method, _example(pattern))
        for pattern, handler in all_routes()
        for method in METHODS
        if _is_own(handler, method.lower())
    ]


def missing_rows() -> list[Row]:
    """Methods that a route does not have."""
    rows = set(all_rows())
    paths = dict.fromkeys(row.path for row in all_rows())
    return [Row(method, path) for path in paths for method in METHODS if (method, path) not in rows]


def _is_own(handler: type[Any], method: str) -> bool:
    own = getattr(handler, method)
    return all(own is not getattr(base, method) for base in (APIHandler, RequestHandler))


def _example(pattern: str) -> str:
    path = pattern.removeprefix("/")
    for before, name in (("runs/", RUN), ("clusters/", CLUSTER), ("dashboard/", CLUSTER)):
        path = path.replace(f"{before}([^/]+)", before + name)
    path = re.sub(r"\([^()]*\)", lambda match: _part(match.group()), path)
    return path.replace(".*", "nothing/here")


def _part(group: str) -> str:
    return next(text for text in _EXAMPLES if re.fullmatch(group, text))


ROWS = all_rows()
OF_DASHBOARD = [row for row in ROWS if row.path.startswith("llmops/dashboard/")]
WITH_BODY = [
    row
    for row in ROWS
    if row.method not in SAFE and row not in OF_DASHBOARD and not row.path.endswith("nothing/here")
]
