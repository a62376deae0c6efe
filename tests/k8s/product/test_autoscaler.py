"""Ray's own autoscaler gives a run its workers, and takes them away again when they are idle.

Real are the autoscaler's process beside the head, with the token of its account and the operator's
Role, and Ray in all pods. It asks the stand-in of the API server as it would ask a real one.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import llmops_kernel as llmops
from llmops_kernel.cli.main import main
from llmops_kernel.errors import ClusterStateError
from llmops_kernel.metrics.events import QueueEvent
from tests.k8s.product.test_end_to_end import config, whole
from tests.k8s.product.test_faults_mid_run import steps
from tests.k8s.product.test_queued_real import ended
from tests.k8s.standin.farm import Farm
from tests.k8s.standin.kueue import workloads as kueue
from tests.k8s.standin.process import StandIn
from tests.k8s.support.changed_template import Template, user_with_template
from tests.waiting import until

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.beside, pytest.mark.timeout(1200)]
__all__ = ["config"]
IDLE_S = 10
TWO_WORKERS = ["parallelism.num_workers=2", "training.global_batch_size=4"]
FOUR_WORKERS = ["parallelism.num_workers=4", "training.global_batch_size=8"]
PATH = "/apis/ray.io/v1/namespaces/{}/rayclusters/auto"


@pytest.fixture
def own_mounts(tmp_path: Path) -> None:
    """Skips where no container can have its account's token where clients look for it."""
    words = ["unshare", "--user", "--map-root-user", "--mount", "mount", "-t", "tmpfs", "none"]
    probe = [*words, str(tmp_path)]
    if shutil.which("unshare") is None or subprocess.run(probe, capture_output=True).returncode:
        pytest.skip("this system does not allow a mount of one's own")


@pytest.fixture
def farm(
    request: pytest.FixtureRequest,
    own_mounts: None,
    standin: StandIn,
    namespace: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Farm]:
    """With Kueue if the parameter is true: then the cluster is in a queue."""
    has_queue = bool(getattr(request, "param", False))
    user_with_template(
        *(standin, monkeypatch), namespace=namespace, folder=tmp_path, name="auto",
        change=queued if has_queue else auto,
    )  # fmt: skip
    with Farm(standin, mode="real", grace_s=1, with_kueue=has_queue) as running:
        if has_queue:
            standin.put(kueue.cluster_queue("cpus", cpu="8", memory="64Gi"))
            standin.put(kueue.local_queue("team", namespace=namespace, cluster_queue="cpus"))
        yield running
    assert running.processes() == []


def auto(template: Template) -> None:
    """From zero to three workers of one CPU; the head has none for work."""
    template["autoscaling"] = {"enabled": True, "idle_timeout_s": IDLE_S}
    template["worker_groups"][0] |= {"cpus": 1, "replicas": 0, "max_replicas": 3}


def queued(template: Template) -> None:
    auto(template)
    template["queue"] = "team"


def workers(farm: Farm, namespace: str) -> list[str]:
    names = [pod["metadata"]["name"] for pod in farm.pods(namespace)]
    return [name for name in names if "-worker-" in name]


def group(farm: Farm, namespace: str) -> dict[str, Any]:
    """The worker group as it is in the API server."""
    spec = farm.http.get(PATH.format(namespace)).json()["spec"]
    (found,) = spec["workerGroupSpecs"]
    return dict(found)


def test_a_run_gets_its_workers_and_they_go_when_idle(
    farm: Farm, namespace: str, config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = llmops.up("auto").wait(timeout_s=400)
    assert (cluster.info.workers_ready, cluster.info.workers_wanted) == (0, 0)
    assert group(farm, namespace)["replicas"] == 0

    run = cluster.submit(config, overrides=TWO_WORKERS)
    until(lambda: run.state == "QUEUED" or run.has_ended)
    assert run.state == "QUEUED", run.logs()[-3000:]
    until(lambda: group(farm, namespace)["replicas"] == 2)
    assert_is_the_autoscalers(farm, namespace)
    assert run.wait(600) == "SUCCEEDED", run.logs()[-3000:]
    whole(run)
    reasons = [event.reason for event in run.events() if isinstance(event, QueueEvent)]
    assert reasons[0] == "needs 2 CPUs; Ray's autoscaler adds nodes (free now: 0 CPUs)"
    assert (cluster.info.workers_ready, cluster.info.workers_wanted) == (2, 2)
    assert_leaves_it_to_the_autoscaler(farm, namespace, cluster, capsys)

    until(lambda: not workers(farm, namespace))
    assert group(farm, namespace)["replicas"] == 0
    assert cluster.info.is_ready
    assert told("cluster", "diff", "auto", capsys=capsys).startswith("nothing: ")
    whole(run)
    assert (run.folder.output / "adapter_model.safetensors").is_file()


def assert_is_the_autoscalers(farm: Farm, namespace: str) -> None:
    """Its process changed the number, as the account that the operator made for it."""
    (head,) = [pod for pod in farm.pods(namespace) if "-head-" in pod["metadata"]["name"]]
    assert [one["name"] for one in head["spec"]["containers"]] == ["ray-head", "autoscaler"]
    path = f"/api/v1/namespaces/{namespace}/pods/{head['metadata']['name']}/log"
    log = farm.http.get(path, params={"container": "autoscaler"}).text
    assert "Submitting a scale request" in log
    fields = farm.http.get(PATH.format(namespace)).json()["metadata"]["managedFields"]
    assert "python-requests" in {entry["manager"] for entry in fields}


def assert_leaves_it_to_the_autoscaler(
    farm: Farm, namespace: str, cluster: llmops.Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its number is no difference from the template, is kept by `apply`, and is not lowered."""
    assert told("cluster", "diff", "auto", capsys=capsys).startswith("nothing: ")
    assert "2 of 2 ready" in told("status", "auto", capsys=capsys)
    with pytest.raises(ClusterStateError, match="only Ray's autoscaler removes some"):
        cluster.scale(workers={"cpu": 1})
    path = Path("cluster_templates") / "auto.yaml"
    template = yaml.safe_load(path.read_text())
    template["worker_groups"][0]["max_replicas"] = 2
    path.write_text(yaml.safe_dump(template))
    told("cluster", "apply", "auto", "--yes", capsys=capsys)
    now = group(farm, namespace)
    assert (now["replicas"], now["maxReplicas"]) == (2, 2)
    assert len(workers(farm, namespace)) == 2


@pytest.mark.nightly
def test_a_run_that_nobody_follows_is_whole_after_its_pods_are_gone(
    farm: Farm, namespace: str, config: Path
) -> None:
    cluster = llmops.up("auto").wait(timeout_s=400)
    with pytest.raises(llmops.LLMOpsError, match="the cluster can have at most 3") as refused:
        cluster.submit(config, overrides=FOUR_WORKERS).wait(400)
    assert "max_replicas" in refused.value.remedy
    run = cluster.submit(config)
    until(lambda: ended(cluster, run))
    until(lambda: not workers(farm, namespace))
    adapter = run.folder.output / "adapter_model.safetensors"
    assert not adapter.exists()
    assert run.wait(60) == "SUCCEEDED", run.logs()[-3000:]
    whole(run)
    assert adapter.is_file()


@pytest.mark.nightly
@pytest.mark.parametrize("farm", [True], indirect=True)
def test_a_suspended_cluster_in_a_queue_keeps_no_workers(
    farm: Farm, namespace: str, config: Path
) -> None:
    """Kueue owns `suspend`, so only the bounds can keep the autoscaler from adding workers."""
    cluster = llmops.up("auto").wait(timeout_s=400)
    run = cluster.submit(config, overrides=["training.max_steps=1000"])
    until(lambda: steps(run) >= 3 or run.has_ended)
    assert run.state == "RUNNING", run.logs()[-3000:]
    cluster.suspend()
    until(lambda: not workers(farm, namespace))
    assert cluster.info.state == "stopped"
    assert group(farm, namespace)["maxReplicas"] == 0
    cluster.resume(wait=True)
    assert group(farm, namespace)["maxReplicas"] == 3
    until(lambda: workers(farm, namespace))


def told(*words: str, capsys: pytest.CaptureFixture[str]) -> str:
    """Return what `llmops` prints."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as leaving:
        main(words)
    shown = capsys.readouterr()
    assert not leaving.value.code, shown.err
    return shown.out
