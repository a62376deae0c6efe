"""An adapter comes from a real Ray head through the stand-in of a Kubernetes API server."""

from __future__ import annotations

import secrets
import shlex
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from llmops_kernel.config.models.kuberay_fields import Access
from llmops_kernel.jobs.client import JobsClient
from llmops_kernel.jobs.history import runs_to_archive, save_history
from llmops_kernel.providers.kuberay.api.client import Kube
from llmops_kernel.providers.kuberay.route.tunnel import close_routes, open_route
from llmops_kernel.providers.protocol import Connection
from llmops_kernel.store.outputs import PART_BYTES
from llmops_kernel.store.store import RunStore
from tests.jobs.conftest import MakeRun, ended
from tests.k8s.conftest import namespace, standin
from tests.k8s.standin.process import StandIn
from tests.providers.kuberay.head_objects import put_cluster
from tests.waiting import until

pytestmark = pytest.mark.ray
__all__ = ["namespace", "standin"]
JOB = Path(__file__).with_name("output_job.py")
NAME = "adapter.safetensors"


@pytest.mark.parametrize("way", ["service-proxy", "url"])
def test_archiving_before_a_suspension_brings_an_adapter(
    way: str,
    standin: StandIn,
    namespace: str,
    connection: Connection,
    store: RunStore,
    make_run: MakeRun,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = standin.kubeconfig(tmp_path / "kubeconfig", namespace=namespace)
    monkeypatch.setenv("KUBECONFIG", str(config))
    port = urlsplit(connection.dashboard_url).port or 0
    raycluster = put_cluster(standin, namespace, port=port, token=connection.token)
    run_id = make_run(f"output-{secrets.token_hex(3)}", provider="elsewhere")
    on_node = tmp_path / "pod"
    words = [sys.executable, JOB, run_id, on_node, 2 * PART_BYTES + 17]
    try:
        with JobsClient(
            open_route(Kube(), raycluster, Access(way=way, url=connection.dashboard_url))
        ) as client:
            client.submit(
                entrypoint=shlex.join(map(str, words)),
                submission_id=f"{run_id}-1",
                runtime_env={},
                metadata={"llmops_run": run_id},
            )
            until(lambda: ended(client, f"{run_id}-1"))
            assert save_history(store, "local", client).runs == (run_id,)
    finally:
        close_routes()
    at_home = store.folder(run_id).output
    assert (at_home / NAME).read_bytes() == (on_node / NAME).read_bytes()
    assert store.view(run_id).outputs[-1].path == str(at_home)
    assert runs_to_archive(store, "local") == ()
