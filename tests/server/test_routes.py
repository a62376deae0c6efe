"""Every route: who may ask, and what happens to requests that are wrong."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from llmops_kernel import __version__
from llmops_kernel.server.base import MAX_BODY_BYTES, LLMOpsHandler
from llmops_kernel.server.routes import all_routes

METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
SAFE = {"GET", "HEAD"}


def _example(pattern: str) -> str:
    """A path that the pattern matches, relative to the base URL."""
    path = pattern.removeprefix("/")
    path = re.sub(r"\((?:\?P<\w+>)?[^()]*\)", lambda m: _part(m.group()), path)
    return path.replace(r"\.", ".").replace("?", "").replace(".*", "nothing/here").rstrip("$")


def _part(group: str) -> str:
    return next(text for text in ("a1", "train", "") if re.fullmatch(group, text) or not text)


def _routes() -> list[tuple[str, str]]:
    """(method, path) of all that a handler answers."""
    unimplemented = LLMOpsHandler.__mro__[-2]
    found = []
    for pattern, handler in all_routes():
        for method in METHODS:
            own = getattr(handler, method.lower())
            if own is not getattr(unimplemented, method.lower(), None) and not _is_base(own):
                found.append((method, _example(pattern)))
    return found


def _is_base(method: Any) -> bool:
    return method.__qualname__.startswith("RequestHandler.") or "_unimplemented" in repr(method)


ROUTES = _routes()


def test_the_table_is_whole() -> None:
    assert ("GET", "llmops/handshake") in ROUTES
    assert len(ROUTES) > 5


@pytest.mark.parametrize(("method", "path"), ROUTES)
async def test_a_stranger_gets_nothing(method: str, path: str, raw: Any) -> None:
    for headers in ({}, {"Authorization": "token wrong"}):
        answer = await raw(path, method=method, headers=headers)
        assert answer.code in (302, 403), (method, path, answer.code)
        if answer.code == 302:
            assert "/login?" in answer.headers["Location"]


@pytest.mark.parametrize(("method", "path"), [row for row in ROUTES if row[0] not in SAFE])
async def test_a_change_with_only_the_cookie_needs_xsrf(
    method: str, path: str, raw: Any, jp_serverapp: Any
) -> None:
    login = await raw(f"lab?token={jp_serverapp.identity_provider.token}")
    cookie = "; ".join(c.split(";")[0] for c in login.headers.get_list("Set-Cookie"))
    answer = await raw(path, method=method, headers={"Cookie": cookie})
    assert answer.code == 403, (method, path, answer.code)
    assert "_xsrf" in answer.body.decode()


@pytest.mark.parametrize("path", sorted({path for _, path in ROUTES}))
async def test_another_users_path_is_not_ours(path: str, raw: Any, jp_auth_header: Any) -> None:
    answer = await raw(f"/user/somebody-else/{path}", headers=jp_auth_header)
    assert answer.code == 404


async def test_the_handshake_tells_the_version(api: Any) -> None:
    answer = json.loads((await api("handshake")).body)
    assert answer["version"] == __version__
    assert answer["protocol"] == 1


async def test_an_unknown_path_is_told_as_json(api: Any) -> None:
    answer = await api("no/such/thing")
    assert answer.code == 404
    assert "no/such/thing" in json.loads(answer.body)["message"]


async def test_a_lost_operation_says_what_to_do(api: Any) -> None:
    answer = await api("operations/abc123")
    assert answer.code == 404
    assert json.loads(answer.body)["remedy"]


def test_the_limit_of_a_body_is_a_limit() -> None:
    assert MAX_BODY_BYTES == 1024 * 1024
