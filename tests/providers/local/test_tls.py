"""A local cluster with TLS: jobs run as before, and who has no certificate is refused."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from llmops_kernel.config.models.cluster import ClusterTemplate
from llmops_kernel.providers.local.provider import LocalProvider
from tests.providers.conftest import record_of
from tests.providers.handshake import lets_in
from tests.providers.local.test_suspend import submit
from tests.waiting import until

pytestmark = [pytest.mark.ray, pytest.mark.slow]

# A driver and a worker: both speak to Ray's servers.
JOB = "import ray; ray.init(); print(ray.get(ray.remote(lambda: 6 * 7).remote()))"


def test_a_job_runs_and_nobody_else_gets_in(home: Path) -> None:
    provider = LocalProvider(home)
    template = ClusterTemplate.model_validate(
        {"name": "sealed", "num_cpus": 1, "tls": True, "warm": {"enabled": False}}
    )
    provider.up(template)
    connection = provider.connect("sealed")
    submit(connection, "seven", JOB)
    with httpx.Client(base_url=connection.dashboard_url, headers=connection.headers()) as http:

        def is_over() -> bool:
            return http.get("/api/jobs/seven").json()["status"] in {"SUCCEEDED", "FAILED"}

        until(is_over, timeout_s=120)
        assert "42" in http.get("/api/jobs/seven/logs").json()["logs"]

    address = record_of(home, "sealed").ray_address
    assert address is not None
    key, crt = (home / "clusters/sealed" / name for name in ("tls.key", "tls.crt"))
    assert key.stat().st_mode & 0o777 == 0o600
    host, _, port = address.rpartition(":")
    gcs = (host, int(port))
    assert lets_in(gcs, authority=crt, certificate=crt, key=key)
    assert not lets_in(gcs, authority=crt), "nothing without a certificate"
    assert not lets_in(gcs, authority=None), "nothing without TLS"
