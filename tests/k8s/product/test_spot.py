"""A spot machine is reclaimed while a run trains on it: real Ray in the pods, one node goes.

The farm evicts the worker's pod hard, without the notice that a cloud gives first, and its
scheduler places the operator's next pod on the other spot node. Checkpoints are on a volume.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import llmops_kernel as llmops
from llmops_kernel.metrics.events import RestartEvent, StepEvent
from tests.cli.conftest import call
from tests.k8s.product.test_end_to_end import config
from tests.k8s.product.test_faults_mid_run import gaps, steps
from tests.k8s.standin.farm import Farm
from tests.k8s.standin.process import StandIn
from tests.k8s.support.changed_template import Template, user_with_template
from tests.waiting import until

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.beside, pytest.mark.timeout(1200)]
__all__ = ["config"]
STEPS, SAVED_EVERY = 30, 6
TAINT = "cloud.google.com/gke-spot=true:NoSchedule"
LABELS = {"cloud.google.com/gke-spot": "true"}


@pytest.fixture
def farm(
    standin: StandIn, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Farm]:
    """Two spot nodes beside the usual one, and a template whose workers are on spot machines."""
    user_with_template(
        *(standin, monkeypatch), namespace=namespace, folder=tmp_path, name="spot", change=on_spot
    )
    standin.put(claim(namespace))
    with Farm(standin, mode="real", grace_s=1) as running:
        for name in ("spot-1", "spot-2"):
            # Room for one worker's pod each.
            running.add_node(name, cpu="3", memory="6Gi", labels=LABELS, taints=(TAINT,))
        yield running
    assert running.processes() == []


def on_spot(template: Template) -> None:
    template["worker_groups"][0] |= {"spot": True}
    volume = {"mount": "/mnt/team", "claim": "team"}
    template["storage"] = {"runs": "/mnt/team/llmops", "volumes": [volume]}


def claim(namespace: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "team", "namespace": namespace},
        "spec": {
            "accessModes": ["ReadWriteMany"],
            "resources": {"requests": {"storage": "1Gi"}},
        },
        "status": {"phase": "Bound"},
    }


def worker(farm: Farm, namespace: str) -> dict[str, Any]:
    """The worker's pod that is not on its way out; empty while there is none."""
    for pod in farm.pods(namespace):
        is_worker = "-worker-" in pod["metadata"]["name"]
        ends = pod["metadata"].get("deletionTimestamp") or pod["status"].get("phase") == "Failed"
        if is_worker and not ends and pod["spec"].get("nodeName"):
            return pod
    return {}


@pytest.mark.nightly
def test_a_run_goes_on_from_its_checkpoint_on_another_machine(
    farm: Farm, namespace: str, config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = llmops.up("spot").wait(timeout_s=400)
    first = worker(farm, namespace)
    assert first["spec"]["nodeName"].startswith("spot-")
    run = cluster.submit(
        config, overrides=[f"training.max_steps={STEPS}", f"checkpoint.every_steps={SAVED_EVERY}"]
    )
    until(lambda: steps(run) >= 2 * SAVED_EVERY + 2 or run.has_ended)
    assert run.state == "RUNNING", run.logs()[-3000:]
    # Its machine is gone: nothing else fits there, and its pod is evicted.
    farm.http.delete(f"/api/v1/nodes/{first['spec']['nodeName']}").raise_for_status()
    farm.nodes.remove(first["spec"]["nodeName"])
    farm.kill_pod(first["metadata"]["name"], namespace=namespace)

    assert run.wait(600) == "SUCCEEDED", run.logs()[-3000:]
    second = worker(farm, namespace)
    assert second["metadata"]["uid"] != first["metadata"]["uid"]
    assert second["spec"]["nodeName"] not in ("", first["spec"]["nodeName"])
    assert second["spec"]["nodeName"].startswith("spot-")
    assert_goes_on(run)
    assert call("show", run.id) == 0
    assert "node" in capsys.readouterr().out


def assert_goes_on(run: llmops.Run) -> None:
    """One restart, with its reason, from the last checkpoint; each step once, no line lost."""
    (restart,) = [event for event in run.events() if isinstance(event, RestartEvent)]
    assert restart.from_step >= SAVED_EVERY
    assert restart.from_step % SAVED_EVERY == 0
    assert re.match(r"worker rank 0 was lost with its node", restart.cause), restart.cause
    trained = [event.step for event in run.events() if isinstance(event, StepEvent)]
    assert set(trained) == {*range(1, STEPS + 1)}
    again = [step for step in trained if trained.count(step) == 2]
    assert all(step > restart.from_step for step in again)
    assert list(run.metrics().index) == [*range(1, STEPS + 1)]
    assert gaps(run) == []
