"""Views of a dashboard: the page from this machine, only data from the cluster, no login."""

from __future__ import annotations

import importlib.metadata
import json
from pathlib import Path
from typing import Any

import pytest

from llmops_kernel.server.dashboard.ray_pages import RayPages
from llmops_kernel.server.dashboard.views import LIFE_S, Views
from tests.server.dashboard.upstream import TOKEN, Upstream, upstream
from tests.server.test_routes import login

__all__ = ["upstream"]
OPAQUE = {"Origin": "null"}


@pytest.fixture
def ray() -> bytes:
    """What a cluster says that runs the Ray of this environment."""
    return json.dumps({"ray_version": importlib.metadata.version("ray")}).encode()


async def open_view(api: Any, cluster: str = "lab", view: str = "") -> Any:
    body = json.dumps({"cluster": cluster, "view": view})
    return await api("dashboard-views", method="POST", body=body)


async def test_the_page_comes_from_this_machine_and_has_no_origin(
    upstream: Upstream, ray: bytes, api: Any, raw: Any
) -> None:
    upstream.version = ray
    view = json.loads((await open_view(api)).body)["view"]
    upstream.seen.clear()
    page = await raw(f"llmops/dashboard-views/{view}/", headers=OPAQUE)
    assert page.code == 200
    assert b'<head><script src="./llmops/opaque.js">' in page.body
    policy = page.headers["Content-Security-Policy"]
    assert policy.startswith("sandbox allow-scripts")
    assert "allow-same-origin" not in policy
    assert "'unsafe-eval'" not in policy
    assert page.headers["Referrer-Policy"] == "no-referrer"
    for path in ("index.html", "favicon.ico", "llmops/opaque.js", "asset-manifest.json"):
        assert (await raw(f"llmops/dashboard-views/{view}/{path}")).code == 200
    nowhere = ("static/js/evil.js", "llmops/shell.html", "static/..%2f..%2f..%2fmodules/x.py")
    for path in (*nowhere, "static", "llmops", "static/%00", f"static/{'a' * 3000}"):
        assert (await raw(f"llmops/dashboard-views/{view}/{path}")).code in (400, 404)
    assert upstream.seen == []
    alone = await raw(f"llmops/dashboard-views/{view}/", headers={"Sec-Fetch-Dest": "document"})
    assert (alone.code, alone.headers["Location"]) == (302, "../../dashboard/lab/")


async def test_a_view_reads_its_cluster_without_a_login_and_nothing_else(
    upstream: Upstream, ray: bytes, api: Any, raw: Any
) -> None:
    upstream.version = ray
    view = json.loads((await open_view(api)).body)["view"]
    place = f"llmops/dashboard-views/{view}"
    answer = await raw(f"{place}/page?type=text/html", headers=OPAQUE)
    assert answer.code == 200
    assert answer.headers["Access-Control-Allow-Origin"] == "null"
    assert "Access-Control-Allow-Credentials" not in answer.headers
    assert answer.headers["Content-Type"].startswith("text/plain")
    assert answer.headers["Content-Security-Policy"].startswith("sandbox; default-src 'none'")
    assert upstream.seen[-1][2]["Authorization"] == f"Bearer {TOKEN}"
    assert TOKEN not in str(list(answer.headers.get_all()))
    moved = await raw(f"{place}/redirect?to=/jobs")
    assert moved.headers["Location"] == f"/user/someone/{place}/jobs"
    for method in ("POST", "PUT", "PATCH", "DELETE"):
        assert (await raw(f"{place}/api/jobs/", method=method)).code in (403, 405)
    for path in ("../../dashboard/lab/x", "..%2f..%2fhandshake", "%2e%2e/%2e%2e/handshake"):
        assert (await raw(f"{place}/{path}")).code in (302, 400, 403, 404)
    strange = await raw(f"llmops/dashboard-views/{'x' * len(view)}/api/version")
    assert strange.code == 302
    assert "/login" in strange.headers["Location"]
    assert (await api("dashboard-views/x/api/version")).code == 404


async def test_a_view_is_renewed_and_one_that_is_lost_is_replaced(
    upstream: Upstream, ray: bytes, api: Any, raw: Any, jp_serverapp: Any
) -> None:
    upstream.version = ray
    cookie, xsrf = await login(raw, jp_serverapp)

    async def browser(path: str, **more: Any) -> Any:
        return await raw(f"llmops/{path}", headers={**cookie, "X-XSRFToken": xsrf}, **more)

    view = json.loads((await open_view(browser)).body)["view"]
    asked = len(upstream.seen)
    assert json.loads((await open_view(browser, view=view)).body)["view"] == view
    assert len(upstream.seen) == asked
    again = json.loads((await open_view(browser, view="of-another-server")).body)["view"]
    assert again not in (view, "of-another-server")
    # Each request with only the server's token is a user of its own to Jupyter.
    assert json.loads((await open_view(api, view=view)).body)["view"] not in (view, again)
    assert (await open_view(browser, "nobody")).code == 404


@pytest.mark.parametrize(
    ("version", "words"),
    [
        (b'{"ray_version": "2.9.1"}', "runs Ray 2.9.1"),
        (b'{"ray_version": "2.60.0\'; rm -rf ~"}', "an unknown version"),
        (b'{"ray_version": ["2.60.0"]}', "an unknown version"),
        (b"[" * 60_000, "an unknown version"),
        (b'{"ray_version": "' + b"9" * 200_000, "an unknown version"),
    ],
)
async def test_without_pages_of_that_version_there_is_a_reason_and_a_link(
    upstream: Upstream, api: Any, version: bytes, words: str
) -> None:
    upstream.version = version
    answer = await open_view(api)
    assert answer.code == 409
    found = json.loads(answer.body)
    assert words in found["message"]
    assert importlib.metadata.version("ray") in found["message"]
    assert found["url"] == upstream.url
    assert "rm -rf" not in found["remedy"] + found["message"]


def test_a_view_ends_and_belongs_to_one_user() -> None:
    now = [0.0]
    views = Views(clock=lambda: now[0])
    pages = RayPages("2.60.0", Path())
    view = views.open(cluster="lab", user="ann", pages=pages)
    assert len(view.id) > 40
    assert views.renew(view.id, cluster="lab", user="bob") is None
    assert views.renew(view.id, cluster="other", user="ann") is None
    now[0] = LIFE_S - 1
    assert views.renew(view.id, cluster="lab", user="ann") is not None
    now[0] = 2 * LIFE_S - 2
    assert views.find(view.id) is not None
    now[0] = 2 * LIFE_S
    assert views.find(view.id) is None
    assert views.renew(view.id, cluster="lab", user="ann") is None


def test_many_views_do_not_pile_up() -> None:
    views = Views(clock=lambda: 0.0)
    ids = [views.open(cluster="lab", user="a", pages=RayPages("1", Path())).id for _ in range(300)]
    assert sum(views.find(one) is not None for one in ids) == 256
    assert views.find(ids[-1]) is not None
