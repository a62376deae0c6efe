"""The dashboard proxy in front of a small upstream that remembers what it was asked."""

from __future__ import annotations

import asyncio
import json
import socket
from typing import Any
from urllib.parse import quote

import pytest

from llmops_kernel.server.dashboard.proxy_rules import ProxyRefusal, response_headers, target_path
from tests.server.dashboard.upstream import (
    BIG_CHUNK,
    BIG_CHUNKS,
    QUALIFIED,
    TOKEN,
    Upstream,
    upstream,
)

__all__ = ["upstream"]


async def test_only_listed_headers_travel_and_the_token_never_comes_back(
    upstream: Upstream, raw: Any, jp_serverapp: Any
) -> None:
    token = jp_serverapp.identity_provider.token
    answer = await raw(
        f"llmops/dashboard/lab/api/version?token={token}&view=summary&_xsrf=1",
        headers={
            "Cookie": "username-localhost=abc; _xsrf=1",
            "X-Ray-Authorization": "Bearer mine",
            "X-Forwarded-Host": "elsewhere",
            "Referer": "http://localhost/lab",
            "Accept-Language": "de",
            "Accept": "application/json",
            "Range": "bytes=0-99",
        },
    )
    assert (answer.code, answer.body) == (200, b"hello")
    method, uri, headers, _ = upstream.seen[0]
    assert (method, uri) == ("GET", "/api/version?view=summary")
    assert headers["Authorization"] == f"Bearer {TOKEN}"
    # Ray then hides what it would hide from a browser.
    assert headers["User-Agent"].startswith("Mozilla")
    sent = {name.lower() for name in headers} - {"host", "connection"}
    assert sent == {
        *("accept", "accept-language", "accept-encoding", "range"),
        *("authorization", "user-agent"),
    }
    assert answer.headers["Content-Type"] == "text/plain; charset=utf-8"
    assert answer.headers["Content-Security-Policy"].startswith("sandbox; default-src 'none'")
    assert "X-Ray-Secret" not in answer.headers
    assert "X-Frame-Options" not in answer.headers
    assert "ray-authentication-token" not in str(list(answer.headers.get_all()))
    assert TOKEN not in str(list(answer.headers.get_all()))


async def test_statuses_and_heads_are_passed_on(upstream: Upstream, api: Any) -> None:
    missing = await api("dashboard/lab/missing")
    assert missing.code == 404
    assert json.loads(missing.body) == {"detail": "no such thing"}
    head = await api("dashboard/lab/there", method="HEAD")
    assert (head.code, head.body) == (200, b"")
    assert head.headers["Content-Length"] == "5"
    assert [seen[:2] for seen in upstream.seen] == [("GET", "/missing"), ("HEAD", "/there")]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("text/html", "text/plain; charset=utf-8"),
        ("TEXT/HTML; charset=utf-7", "text/plain; charset=utf-8"),
        ("application/xhtml+xml", "text/plain; charset=utf-8"),
        ("text/javascript", "text/plain; charset=utf-8"),
        ("application/javascript", "text/plain; charset=utf-8"),
        ("multipart/x-mixed-replace; boundary=a", "application/octet-stream"),
        ("application/pdf", "application/octet-stream"),
        ("image/svg+xml", "image/svg+xml"),
        ("application/json; charset=utf-16", "application/json"),
    ],
)
async def test_no_browser_runs_what_a_cluster_answers(
    upstream: Upstream, api: Any, kind: str, expected: str
) -> None:
    answer = await api(f"dashboard/lab/page?type={quote(kind)}")
    assert answer.headers["Content-Type"] == expected
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    policy = answer.headers["Content-Security-Policy"]
    assert policy.startswith("sandbox; default-src 'none'")
    assert "allow-" not in policy
    assert "script-src" not in policy
    passed = ("Clear-Site-Data", "Service-Worker-Allowed", "Refresh")
    assert not any(name in answer.headers for name in passed)
    assert answer.headers.get("Access-Control-Allow-Origin") != "*"


async def test_the_page_of_a_dashboard_is_jupyters_own(upstream: Upstream, api: Any) -> None:
    answer = await api("dashboard/lab/")
    assert answer.code == 200
    assert "sandbox=" in answer.body.decode()
    assert "script-src 'nonce-" in answer.headers["Content-Security-Policy"]
    assert upstream.seen == []
    name = quote('<b>" onload="x', safe="")
    odd = await api(f"dashboard/{name}/")
    assert b"<b>" not in odd.body
    assert b'" onload' not in odd.body


async def test_a_qualified_name_leads_to_its_cluster(upstream: Upstream, api: Any) -> None:
    """`context/namespace/name`, as a browser encodes it, where two clusters have one name."""
    place = f"dashboard/{quote(QUALIFIED, safe='')}"
    for path in ("api/version", "logs/%2A.log"):
        assert (await api(f"{place}/{path}")).code == 200
    assert [uri for _, uri, _, _ in upstream.seen] == ["/api/version", "/logs/%2A.log"]
    moved = await api(f"{place}/redirect?to=/jobs")
    assert moved.headers["Location"] == f"/user/someone/llmops/{place}/jobs"


async def test_without_the_slash_the_browser_is_sent_to_it(upstream: Upstream, api: Any) -> None:
    answer = await api("dashboard/lab?x=1")
    assert answer.code == 302
    assert answer.headers["Location"] == "/user/someone/llmops/dashboard/lab/?x=1"
    assert upstream.seen == []


@pytest.mark.parametrize(
    ("path", "codes"),
    [
        ("dashboard/lab/../../api/status", {400, 404}),
        ("dashboard/lab/..%2f..%2fapi", {400}),
        ("dashboard/lab/%2e%2e/x", {400}),
        ("dashboard/lab//evil.example/x", {400}),
        ("dashboard/lab/a//b", {400}),
        ("dashboard/lab/%2Fevil.example", {400}),
        ("dashboard/lab/a%252fb", {400}),
        ("dashboard/lab/a%5cb", {400}),
        ("dashboard/lab/a%0d%0ab", {400}),
        ("dashboard/lab/a%00", {400}),
        ("dashboard/lab@evil.example/x", {404}),
        ("dashboard/127.0.0.1:1/x", {404}),
        ("dashboard/other/x", {404}),
        ("dashboard//x", {404}),
    ],
)
async def test_no_other_place_can_be_reached(
    upstream: Upstream, api: Any, path: str, codes: set[int]
) -> None:
    answer = await api(path)
    assert answer.code in codes, answer.body
    assert upstream.seen == []


async def test_an_absolute_address_in_the_request_line_is_not_followed(
    upstream: Upstream, jp_http_port: int, jp_serverapp: Any, http_server: Any
) -> None:
    token = jp_serverapp.identity_provider.token
    for target in (f"{upstream.url}/x", f"{upstream.url}/user/someone/llmops/dashboard/lab/x"):
        reader, writer = await asyncio.open_connection("127.0.0.1", jp_http_port)
        line = f"GET {target} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n"
        writer.write(f"{line}Authorization: token {token}\r\n\r\n".encode())
        answer = await asyncio.wait_for(reader.read(), 10)
        writer.close()
        assert b"hello" not in answer
        assert answer.startswith((b"HTTP/1.1 40", b"HTTP/1.1 30")), answer[:100]
    assert upstream.seen == []


@pytest.mark.parametrize(
    ("to", "location"),
    [
        ("/jobs?x=1#top", "/user/someone/llmops/dashboard/lab/jobs?x=1#top"),
        ("index.html", "/user/someone/llmops/dashboard/lab/index.html"),
        ("HERE/deep/page", "/user/someone/llmops/dashboard/lab/deep/page"),
        ("../../../x", "/user/someone/llmops/dashboard/lab/x"),
        ("http://evil.example/x", None),
        ("//evil.example/x", None),
        ("https://127.0.0.1:1/x", None),
        ("javascript:alert(1)", None),
        ("\\\\evil.example", None),
        ("/%2e%2e/%2e%2e/api/kernels", None),
        ("/..%2f..%2fapi/kernels", None),
    ],
)
async def test_redirects_stay_below_the_proxy_or_lose_their_target(
    upstream: Upstream, api: Any, to: str, location: str | None
) -> None:
    to = to.replace("HERE", upstream.url)
    answer = await api(f"dashboard/lab/redirect?to={quote(to, safe='')}")
    assert answer.code == 302
    assert answer.headers.get("Location") == location


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
async def test_nothing_is_changed_unless_that_is_allowed(
    upstream: Upstream, api: Any, method: str
) -> None:
    answer = await api("dashboard/lab/api/jobs/", method=method)
    assert answer.code == 405
    assert b"dashboard_writable" in answer.body
    assert upstream.seen == []


@pytest.mark.parametrize("path", ["api/v0/logs/stream", "api/v0/logs/str%65am", "api/v0/delay/9"])
async def test_what_harms_the_head_is_not_passed_on(
    upstream: Upstream, api: Any, path: str
) -> None:
    answer = await api(f"dashboard/lab/{path}?lines=10")
    assert answer.code == 501
    assert b"Try: " in answer.body
    assert upstream.seen == []


async def test_a_change_that_is_allowed_needs_xsrf_and_arrives_whole(
    writable: None, upstream: Upstream, api: Any, raw: Any, jp_serverapp: Any
) -> None:
    login = await raw(f"lab?token={jp_serverapp.identity_provider.token}")
    cookies = [value.split(";")[0] for value in login.headers.get_list("Set-Cookie")]
    path = "llmops/dashboard/lab/api/packages/gcs/x.zip"
    for headers in ({}, {"Authorization": "token wrong"}, {"Cookie": "; ".join(cookies)}):
        refused = await raw(path, method="PUT", headers=headers, body=b"data")
        assert refused.code == 403
    assert upstream.seen == []
    body = bytes(range(256)) * 8192
    headers = {"Content-Type": "application/zip", "Origin": "http://127.0.0.1"}
    answer = await api(path.removeprefix("llmops/"), method="PUT", headers=headers, body=body)
    assert answer.code == 200
    method, _, sent, received = upstream.seen[0]
    assert (method, received) == ("PUT", body)
    assert sent["Content-Type"] == "application/zip"
    # Ray takes a change only from what does not look like a browser.
    assert not sent["User-Agent"].startswith("Mozilla")
    assert "Origin" not in sent


async def test_a_stranger_learns_nothing(upstream: Upstream, raw: Any) -> None:
    for headers in ({}, {"Authorization": f"Bearer {TOKEN}"}):
        answer = await raw("llmops/dashboard/lab/", headers=headers)
        assert answer.code == 302
        assert "/login" in answer.headers["Location"]
    assert upstream.seen == []


@pytest.fixture
def lenient(jp_server_config: Any) -> None:
    """Jupyter's default: only what a handler says itself is protected."""
    jp_server_config["ServerApp"]["allow_unauthenticated_access"] = True


async def test_a_stranger_learns_nothing_from_a_lenient_server_either(
    lenient: None, writable: None, upstream: Upstream, raw: Any
) -> None:
    for method in ("GET", "HEAD", "POST", "PUT", "DELETE"):
        for path in ("llmops/dashboard/lab/", "llmops/dashboard/lab"):
            answer = await raw(path, method=method)
            assert answer.code in (302, 403, 405), (method, path, answer.code)
    assert upstream.seen == []


async def test_a_dead_or_unknown_cluster_is_reported_on_a_page(
    upstream: Upstream, api: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    unknown = await api("dashboard/no<b>/x")
    assert unknown.code == 404
    assert b"no&lt;b&gt;" in unknown.body
    assert b"Try: llmops up" in unknown.body
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        upstream.port = closed.getsockname()[1]
        answer = await api("dashboard/lab/x")
    assert answer.code == 503
    assert b"does not answer" in answer.body
    assert TOKEN.encode() not in answer.body


async def test_a_big_file_streams_and_ends_upstream_when_the_reader_leaves(
    upstream: Upstream, api: Any, jp_http_port: int, jp_auth_header: dict[str, str]
) -> None:
    whole = await api("dashboard/lab/big")
    assert len(whole.body) == BIG_CHUNKS * len(BIG_CHUNK)
    upstream.sent = 0
    reader, writer = await asyncio.open_connection("127.0.0.1", jp_http_port)
    head = "GET /user/someone/llmops/dashboard/lab/big HTTP/1.1\r\nHost: 127.0.0.1\r\n"
    writer.write(f"{head}Authorization: {jp_auth_header['Authorization']}\r\n\r\n".encode())
    assert (await reader.readline()).startswith(b"HTTP/1.1 200")
    await asyncio.sleep(0.5)
    # Nobody reads on, so little more than what the sockets hold has left Ray.
    assert upstream.sent < BIG_CHUNKS
    upstream.aborted.clear()
    writer.transport.abort()
    await asyncio.wait_for(upstream.aborted.wait(), 10)


async def test_a_page_that_polls_does_not_keep_the_server_alive(
    upstream: Upstream, api: Any, jp_serverapp: Any
) -> None:
    before = jp_serverapp.web_app.last_activity()
    for _ in range(3):
        await api("dashboard/lab/nodes?view=summary")
    assert jp_serverapp.web_app.last_activity() == before


@pytest.mark.parametrize("path", ["", "static/js/main.js", "api/jobs/", "a%20b", "logs/%2A.log"])
def test_plain_paths_pass_as_they_are(path: str) -> None:
    assert target_path(path, "") == f"/{path}"


@pytest.mark.parametrize("path", ["..", "a/..", "./a", "a\x01", "a\\b", "/a", "\xfe", "a#b", "a b"])
def test_odd_paths_do_not(path: str) -> None:
    with pytest.raises(ProxyRefusal):
        target_path(path, "")


def test_a_dashboard_below_a_path_keeps_its_redirects_there() -> None:
    base, prefix = "https://api.example/services/ray:dashboard/proxy", "/llmops/dashboard/lab/"
    for to, expected in (("/services/ray:dashboard/proxy/x", f"{prefix}x"), ("/api/v1/pods", None)):
        found = response_headers({"Location": to}, url=f"{base}/", base=base, prefix=prefix)
        assert dict(found).get("Location") == expected
