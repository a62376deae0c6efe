"""Every route of the table: who may ask it, from where, and with what proof."""

from __future__ import annotations

import json
from typing import Any

import pytest
from jupyter_server.auth.authorizer import Authorizer

from llmops_kernel import __version__
from llmops_kernel.server.base import AUTH_RESOURCE
from tests.server.conftest import Fetch
from tests.server.live.test_live import UPGRADE
from tests.server.routes_table import OF_DASHBOARD, ROWS, SAFE, Row, missing_rows

CHANGES = [row for row in ROWS if row.method not in SAFE]


class Lists(Authorizer):
    """Lets the actions of `allowed`, and remembers what it was asked."""

    allowed: frozenset[str] = frozenset()
    asked: list[tuple[str, str]] = []  # noqa: RUF012 (emptied by the fixture)

    def is_authorized(self, handler: Any, user: Any, action: str, resource: str) -> bool:
        if "llmops" in handler.request.path:
            self.asked.append((action, resource))
        return action in self.allowed


@pytest.fixture
def denying(jp_server_config: Any) -> type[Lists]:
    """To be named before the server's own fixtures."""
    jp_server_config["ServerApp"]["authorizer_class"] = Lists
    Lists.allowed = frozenset()
    Lists.asked.clear()
    return Lists


def headers_of(row: Row, more: dict[str, str]) -> dict[str, str]:
    """A websocket only opens for a request that asks for one."""
    return {**(UPGRADE if row.path.endswith("/live") else {}), **more}


async def login(raw: Fetch, jp_serverapp: Any) -> tuple[dict[str, str], str]:
    """Cookies as a browser has them, and the token that its pages send along."""
    answer = await raw(f"lab?token={jp_serverapp.identity_provider.token}")
    pairs = [value.split(";")[0] for value in answer.headers.get_list("Set-Cookie")]
    xsrf = next(pair.partition("=")[2] for pair in pairs if pair.startswith("_xsrf="))
    return {"Cookie": "; ".join(pairs)}, xsrf


def test_the_table_is_whole() -> None:
    assert Row("GET", "llmops/handshake") in ROWS
    assert Row("GET", "llmops/live") in ROWS
    assert Row("POST", "llmops/clusters/lab/resume") in ROWS
    assert Row("PUT", "llmops/dashboard/lab/resume") in ROWS
    assert len(ROWS) > 40


async def test_a_stranger_gets_nothing(raw: Fetch) -> None:
    for row in ROWS:
        for proof in ({}, {"Authorization": "token wrong"}, {"Authorization": "Bearer "}):
            answer = await raw(row.path, method=row.method, headers=headers_of(row, proof))
            assert answer.code in (302, 403), (row, proof, answer.code)
            if answer.code == 302:
                assert "/login?" in answer.headers["Location"]


async def test_a_change_with_only_the_cookie_needs_xsrf(raw: Fetch, jp_serverapp: Any) -> None:
    cookie, _ = await login(raw, jp_serverapp)
    for row in CHANGES:
        for proof in ({}, {"X-XSRFToken": "wrong"}):
            answer = await raw(row.path, method=row.method, headers={**cookie, **proof})
            assert answer.code == 403, (row, answer.code)
            assert b"xsrf" in answer.body.lower()


async def test_with_the_cookie_and_its_token_every_route_answers(
    raw: Fetch, jp_serverapp: Any
) -> None:
    cookie, xsrf = await login(raw, jp_serverapp)
    for row in ROWS:
        headers = headers_of(row, {**cookie, "X-XSRFToken": xsrf})
        if row.path.endswith("/live"):
            continue  # It opens; `test_live` talks to it.
        answer = await raw(row.path, method=row.method, headers=headers)
        assert answer.code not in (401, 403, 500), (row, answer.code, answer.body)
        assert "/login" not in answer.headers.get("Location", "")


async def test_a_page_of_another_site_reads_and_opens_nothing(
    raw: Fetch, jp_serverapp: Any
) -> None:
    cookie, _ = await login(raw, jp_serverapp)
    site = {"Origin": "https://evil.example", "Referer": "https://evil.example/page"}
    for row in ROWS:
        if row in OF_DASHBOARD:
            continue  # Such a page may not read it, and what it changes needs the XSRF token.
        answer = await raw(row.path, method=row.method, headers=headers_of(row, cookie | site))
        assert answer.code in (403, 404), (row, answer.code)
        assert "Access-Control-Allow-Origin" not in answer.headers


async def test_another_users_path_is_not_ours(raw: Fetch, jp_auth_header: Any) -> None:
    for row in ROWS:
        for user in ("somebody-else", "someone-else", "someone%2f.."):
            path = f"/user/{user}/{row.path}"
            answer = await raw(path, method=row.method, headers=headers_of(row, jp_auth_header))
            assert answer.code in (403, 404), (row, user, answer.code)


async def test_who_may_nothing_gets_nothing(
    denying: type[Lists], writable: None, api: Fetch
) -> None:
    for row in ROWS:
        path = row.path.removeprefix("llmops/")
        answer = await api(path, method=row.method, headers=headers_of(row, {}))
        assert answer.code == 403, (row, answer.code)
    assert {resource for _, resource in denying.asked} == {AUTH_RESOURCE}


async def test_who_may_read_changes_nothing(
    denying: type[Lists], writable: None, api: Fetch
) -> None:
    denying.allowed = frozenset({"read"})
    for row in ROWS:
        path = row.path.removeprefix("llmops/")
        answer = await api(path, method=row.method, headers=headers_of(row, {}))
        is_refused = row.method not in SAFE or row.path.endswith("/live")
        assert (answer.code == 403) == is_refused, (row, answer.code)
        assert answer.code != 500


async def test_other_methods_are_refused(api: Fetch) -> None:
    for row in missing_rows():
        answer = await api(row.path.removeprefix("llmops/"), method=row.method)
        assert answer.code == 405, (row, answer.code)
        assert b"Traceback" not in answer.body


async def test_the_handshake_shows_the_version(api: Fetch) -> None:
    answer = json.loads((await api("handshake")).body)
    assert answer["version"] == __version__
    assert answer["protocol"] == 1


async def test_an_unknown_path_is_reported_as_json(api: Fetch) -> None:
    answer = await api("no/such/thing")
    assert answer.code == 404
    assert "no/such/thing" in json.loads(answer.body)["message"]
