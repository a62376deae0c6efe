"""One cluster's life: up, scale, suspend, resume, delete, with a job on it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from llmops_kernel.api.cluster_handle import Cluster
from llmops_kernel.config.reading.templates import find_template, load_cluster_template
from llmops_kernel.errors import ClusterNotFoundError
from llmops_kernel.providers.local.processes import cluster_processes
from llmops_kernel.providers.local.provider import LocalProvider
from llmops_kernel.providers.protocol import ClusterAction, ClusterSize, ClusterState, Connection
from tests.providers.conftest import assert_no_trouble, record_of
from tests.waiting import until

pytestmark = pytest.mark.ray

TEMPLATE = "name: life\nnum_cpus: 1\nwarm: {enabled: false}\nenv: {LIFE_TOKEN: hush-hush}\n"


def submit(connection: Connection, name: str, code: str, **metadata: str) -> None:
    body = {
        "entrypoint": f'python -c "{code}"',
        "submission_id": name,
        "metadata": metadata,
    }
    with httpx.Client(base_url=connection.dashboard_url, headers=connection.headers()) as http:
        assert http.post("/api/jobs/", json=body, timeout=60).status_code == 200


def test_scale_suspend_resume_delete(home: Path, tmp_path: Path) -> None:
    file = tmp_path / "life.yaml"
    file.write_text(TEMPLATE)
    provider = LocalProvider(home)
    cluster = Cluster("life", provider=provider)
    provider.up(load_cluster_template(file), template_path=find_template(file))
    first = record_of(home, "life")
    _idle_then_busy(provider)

    reported: list[str] = []
    assert cluster.scale(num_cpus=2, progress=reported.append).info.num_cpus == 2
    assert "Stopping cluster life" in reported[0]
    assert not cluster_processes(first)
    assert "these numbers" in provider.scale("life", ClusterSize(num_cpus=2)).message

    assert seen_while(provider, cluster.suspend) <= {"ready", "stopping", "stopped"}
    assert cluster.info.state is ClusterState.STOPPED
    second = record_of(home, "life")
    assert not cluster_processes(second)
    assert "hush" not in (home / "clusters/life/cluster.json").read_text()

    info = cluster.resume().info
    assert (info.state, info.num_cpus) == (ClusterState.READY, 2)
    assert_no_trouble(info)
    head = record_of(home, "life")
    environments = [process.environ().get("LIFE_TOKEN") for process in cluster_processes(head)]
    assert "hush-hush" in environments

    cluster.delete()
    assert not cluster_processes(head)
    assert not (home / "clusters/life").exists()
    with pytest.raises(ClusterNotFoundError):
        _ = cluster.info


def seen_while(provider: LocalProvider, action: Callable[[], None]) -> set[str]:
    """The states that somebody else saw: a cluster that is being stopped has not died."""
    seen: set[str] = set()
    thread = threading.Thread(target=action)
    thread.start()
    while thread.is_alive():
        seen.add(str(provider.get("life").state))
        time.sleep(0.05)
    thread.join()
    assert "stopping" in seen
    return seen


def _idle_then_busy(provider: LocalProvider) -> None:
    info = provider.get("life")
    assert info.jobs_total == 0
    assert info.idle_s is not None
    assert 0 <= info.idle_s < 120
    assert not provider.preview("life", ClusterAction.SUSPEND).needs_confirmation
    connection = provider.connect("life")
    submit(connection, "short", "print(1)")
    until(lambda: provider.get("life").idle_s is not None, timeout_s=60)
    ended_s = provider.get("life").idle_s
    submit(connection, "ours-1", "import time; time.sleep(600)", llmops_run="ours")
    until(lambda: provider.get("life").jobs_running == 1)
    assert provider.get("life").idle_s is None
    assert provider.get("life").jobs_total == 2
    time.sleep(1)
    preview = provider.preview("life", ClusterAction.SCALE)
    assert any(line.startswith("run ours (") for line in preview.stops)
    assert "1 node" in preview.stops
    assert preview.needs_confirmation
    assert ended_s is not None
    assert ended_s < 60
