"""The proxy in front of a real Ray Dashboard."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

import pytest

from llmops_kernel.providers.protocol import ClusterInfo
from llmops_kernel.providers.registry import provider_for

pytestmark = pytest.mark.ray


async def test_the_dashboard_and_its_parts_come_through(ray_cluster: ClusterInfo, api: Any) -> None:
    token = provider_for("test").connect("test").token
    opened = await api("dashboard-views", method="POST", body='{"cluster": "test"}')
    assert opened.code == 200, opened.body
    view = f"dashboard-views/{json.loads(opened.body)['view']}"
    page = await api(f"{view}/", headers={"Accept-Encoding": "gzip"}, decompress_response=True)
    assert page.code == 200
    assert page.headers["Content-Type"].startswith("text/html")
    script = re.search(r'src="\./(static/[^"]+\.js)"', page.body.decode())
    assert script is not None
    code = await api(f"{view}/{script[1]}", headers={"Accept-Encoding": "gzip"})
    assert code.code == 200
    assert len(code.body) > 100_000
    assert (await api(f"{view}/api/version")).body == (await api("dashboard/test/api/version")).body
    for path in ("api/version", "nodes?view=summary", "api/jobs/", "api/cluster_status"):
        answer = await api(f"dashboard/test/{path}")
        assert answer.code == 200, (path, answer.body[:200])
        assert isinstance(json.loads(answer.body), dict | list)
        assert token.encode() not in answer.body
        # Jupyter's own login cookie is none of Ray's.
        cookies = answer.headers.get_list("Set-Cookie")
        assert all(cookie.startswith("username-") for cookie in cookies), cookies
    refused = await api("dashboard/test/api/jobs/", method="POST", body="{}")
    assert refused.code == 405
    probe = await api("dashboard/test/api/v0/platform_events", method="HEAD")
    assert probe.code in (200, 404)


async def test_a_job_sent_through_it_runs_and_its_log_reads(
    writable: None, ray_cluster: ClusterInfo, api: Any
) -> None:
    body = {
        "entrypoint": "echo through-the-proxy",
        "submission_id": "by-proxy",
        "runtime_env": {"env_vars": {"TOKEN": "hush-hush"}},
    }
    headers = {"Content-Type": "application/json"}
    path = "dashboard/test/api/jobs/"
    # Ray answers once the job's process runs: long on a busy machine.
    sent = await api(
        path, method="POST", headers=headers, body=json.dumps(body), request_timeout=60
    )
    assert sent.code == 200, sent.body
    job: dict[str, Any] = {}
    for _ in range(240):
        answer = await api(f"{path}by-proxy")
        # Ray hides variables from browsers, and so from every reader here.
        assert b"hush-hush" not in answer.body
        job = json.loads(answer.body)
        if job["status"] in ("SUCCEEDED", "FAILED"):
            break
        await asyncio.sleep(0.5)
    assert job["status"] == "SUCCEEDED"
    node = job["driver_node_id"]
    query = f"node_id={node}&filename=job-driver-by-proxy.log&lines=50"
    log = await api(f"dashboard/test/api/v0/logs/file?{query}")
    assert log.code == 200
    assert b"through-the-proxy" in log.body
    assert (await api(f"dashboard/test/api/v0/logs/stream?{query}")).code == 501
