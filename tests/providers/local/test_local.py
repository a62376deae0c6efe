"""What can be asked of a running head; nothing here harms it."""

from __future__ import annotations

import json
import time

import httpx
import psutil
import pytest

from llmops_kernel.config.models.cluster import ClusterTemplate
from llmops_kernel.providers.local.processes import cluster_processes
from llmops_kernel.providers.local.provider import LocalProvider
from llmops_kernel.providers.local.record import cluster_folder
from llmops_kernel.providers.protocol import ClusterInfo, ClusterState
from llmops_kernel.providers.registry import provider_for, survey
from llmops_kernel.store import paths
from tests.providers.conftest import all_listening, assert_no_trouble, record_of
from tests.waiting import until

pytestmark = pytest.mark.ray

# A job that tells what it was given, and that Ray can be reached from it.
JOB = """
import json, os, subprocess, sys, ray
asked = ["python", "-c", "import sys; print(sys.executable, end='')"]
ray.init(log_to_driver=False)
print("SEEN " + json.dumps({
    "executable": sys.executable,
    "python": subprocess.check_output(asked, text=True),
    "RAY_ADDRESS": os.environ.get("RAY_ADDRESS"),
    "gcs": ray.get_runtime_context().gcs_address,
    "node_ip": ray.util.get_node_ip_address(),
    "stop_wait": os.environ.get("RAY_JOB_STOP_WAIT_TIME_S"),
    "extensions": os.environ.get("TORCH_EXTENSIONS_DIR"),
    "lark": "lark" in sys.modules,
    "answer": ray.get(ray.remote(lambda: 42).remote()),
}))
"""


@pytest.fixture
def dashboard(ray_cluster: ClusterInfo) -> httpx.Client:
    connection = LocalProvider().connect("test")
    return httpx.Client(base_url=connection.dashboard_url, headers=connection.headers(), timeout=60)


def test_a_ready_cluster_shows_its_size_and_address(ray_cluster: ClusterInfo) -> None:
    assert ray_cluster.state is ClusterState.READY
    assert ray_cluster.num_nodes == 1
    assert ray_cluster.num_cpus == psutil.cpu_count()
    assert ray_cluster.num_gpus is not None
    assert ray_cluster.dashboard_url is not None
    assert ray_cluster.dashboard_url.startswith("http://127.0.0.1:")
    assert ray_cluster.ray_address is not None
    assert ray_cluster.ray_address.startswith("127.0.0.1:")
    assert_no_trouble(ray_cluster)
    assert provider_for("test").get("test").ray_address == ray_cluster.ray_address
    assert "test" in [info.name for info in survey().infos]
    assert provider_for("test").name == provider_for(ClusterTemplate()).name == "local"


def test_attaching_is_quick_and_shows_what_differs(ray_cluster: ClusterInfo) -> None:
    reported: list[str] = []
    began = time.monotonic()
    info = LocalProvider().up(ClusterTemplate(name="test", num_cpus=7), progress=reported.append)
    print(f"attached in {time.monotonic() - began:.2f} s")
    assert (info.dashboard_url, info.created_s) == (
        ray_cluster.dashboard_url,
        ray_cluster.created_s,
    )
    assert info.num_cpus == ray_cluster.num_cpus
    assert "num_cpus=default (the cluster template has 7)" in info.message
    assert reported == []


def test_the_token_is_required(ray_cluster: ClusterInfo, dashboard: httpx.Client) -> None:
    url = f"{ray_cluster.dashboard_url}/api/version"
    assert httpx.get(url).status_code == 401
    assert httpx.get(url, headers={"Authorization": "Bearer wrong"}).status_code == 403
    assert dashboard.get("/api/version").status_code == 200


def test_the_token_is_in_no_command_line_and_its_file_is_private(ray_cluster: ClusterInfo) -> None:
    folder = cluster_folder(paths.home(), "test")
    token = folder.token.read_text()
    assert folder.token.stat().st_mode & 0o777 == 0o600
    processes = cluster_processes(record_of(paths.home(), "test"))
    assert len(processes) > 5
    assert not any(token in word for process in processes for word in process.cmdline())
    assert not any(token in value for p in processes for value in p.environ().values())


def test_a_job_finds_ray_and_our_interpreter_and_every_socket_is_loopback(
    dashboard: httpx.Client, ray_cluster: ClusterInfo, tmp_path: object
) -> None:
    script = paths.home() / "job.py"
    script.write_text(JOB)
    job = f"seen-{time.time_ns()}"
    body = {"entrypoint": f"python {script}", "submission_id": job}
    assert dashboard.post("/api/jobs/", json=body).status_code == 200
    sockets: set[tuple[str, int]] = set()

    def is_over() -> bool:
        sockets.update(all_listening(record_of(paths.home(), "test")))
        return dashboard.get(f"/api/jobs/{job}").json()["status"] in {"SUCCEEDED", "FAILED"}

    until(is_over, timeout_s=120)
    logs = dashboard.get(f"/api/jobs/{job}/logs").json()["logs"]
    assert "SEEN" in logs, logs
    seen = json.loads(logs.split("SEEN ")[1].splitlines()[0])
    assert seen["python"] == seen["executable"]
    assert seen["RAY_ADDRESS"] == seen["gcs"] == ray_cluster.ray_address
    assert seen["node_ip"] == "127.0.0.1"
    assert seen["stop_wait"] == "120"
    assert seen["extensions"].startswith(str(paths.cache()))
    assert not seen["lark"]
    assert seen["answer"] == 42
    assert len(sockets) >= 8
    assert {address.removeprefix("::ffff:") for address, _ in sockets} == {"127.0.0.1"}, sockets
