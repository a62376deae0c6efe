"""A LoRA run on a cluster that Kueue admitted, while it gets another size: real Ray in all pods.

Kueue is a stand-in. With its feature gate for elastic jobs the head keeps running; without it all
pods are replaced, and what only they have is copied home first. The run trains on the head: its
worker requests as many CPUs as the head has, and more than a worker pod has. A run whose worker is
on a pod that is removed goes on from its checkpoint: tests/end_to_end/test_kills.py.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import llmops_kernel as llmops
from llmops_kernel.metrics.events import HoldEvent, RestartEvent, StepEvent
from tests.cli.conftest import call
from tests.k8s.product.test_end_to_end import config
from tests.k8s.product.test_faults_mid_run import gaps, steps
from tests.k8s.standin.farm import Farm
from tests.k8s.standin.kueue import workloads as kueue
from tests.k8s.standin.process import StandIn
from tests.k8s.support.changed_template import Template, user_with_template
from tests.waiting import until

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.beside, pytest.mark.timeout(1200)]
__all__ = ["config"]
LENGTH_S, STEP_S = float(os.environ.get("LLMOPS_TEST_RUN_S", "40")), 0.5
"""How long the run trains at least. It waits before its last steps until all changes are made."""
STEPS = int(LENGTH_S / STEP_S)
ON_HEAD = ["parallelism.cpus_per_worker=2"]
LAST_STEPS = 5
"""Trained after all changes, however slow these are."""
HOOKS = """
import time
from pathlib import Path
from transformers import TrainerCallback

class Slow(TrainerCallback):
    def on_step_end(self, args, state, control, **kwargs):
        time.sleep({step_s})
        while state.global_step == {waits_at} and not Path({changed!r}).exists():
            time.sleep(0.1)

def callbacks():
    return [Slow()]
"""


@pytest.fixture
def farm(
    request: pytest.FixtureRequest,
    standin: StandIn,
    namespace: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Farm]:
    """A Kubernetes with Kueue, with the feature gate or without it, and a template with a queue."""
    user_with_template(
        *(standin, monkeypatch), namespace=namespace, folder=tmp_path, name="queued", change=queued
    )
    elastic = bool(request.param)
    with Farm(standin, mode="real", grace_s=1, with_kueue=True, elastic_jobs=elastic) as running:
        queue = f"cpus-{namespace}"
        standin.put(kueue.cluster_queue(queue, cpu="8", memory="64Gi"))
        standin.put(kueue.local_queue("team-a", namespace=namespace, cluster_queue=queue))
        yield running
    assert running.processes() == []


def queued(template: Template) -> None:
    template["queue"] = "team-a"
    template["head"] |= {"cpus": 2, "num_cpus": 2}
    template["worker_groups"][0]["cpus"] = 1


@pytest.fixture
def changed(tmp_path: Path) -> Path:
    """Once this file exists, the run trains its last steps."""
    return tmp_path / "changed"


def submitted(cluster: llmops.Cluster, config: Path, changed: Path) -> llmops.Run:
    """Submit the long run, and wait until it trains."""
    waits_at = STEPS - LAST_STEPS
    hooks = HOOKS.format(step_s=STEP_S, waits_at=waits_at, changed=str(changed))
    (config.parent / "hooks.py").write_text(hooks)
    long = [f"training.max_steps={STEPS}", "checkpoint.every_steps=20"]
    run = cluster.submit(config, overrides=[*ON_HEAD, *long])
    until(lambda: steps(run) >= 3 or run.has_ended)
    assert run.state == "RUNNING", run.logs()[-3000:]
    return run


def head(farm: Farm, namespace: str) -> str:
    uids = [p["metadata"]["uid"] for p in farm.pods(namespace) if "-head-" in p["metadata"]["name"]]
    return str(uids[0]) if len(uids) == 1 else ""


def num_workers(farm: Farm, namespace: str) -> int:
    return sum("-worker-" in pod["metadata"]["name"] for pod in farm.pods(namespace))


def trained(run: llmops.Run) -> list[int]:
    return [event.step for event in run.events() if isinstance(event, StepEvent)]


def goes_on(run: llmops.Run) -> None:
    before = steps(run)
    # A step is journaled after its hook, so of the one that waits there is nothing yet.
    until(lambda: steps(run) > before or before >= STEPS - LAST_STEPS - 1)
    assert run.state == "RUNNING"


def ended(cluster: llmops.Cluster, run: llmops.Run) -> bool:
    """Return whether the driver has ended, without reading the run's journal."""
    with cluster.client() as client:
        job = client.get(run.attempts[-1].submission_id)
    assert job is not None
    return job.is_terminal


@pytest.mark.nightly
@pytest.mark.parametrize("farm", [True], indirect=True)
def test_a_run_trains_on_while_its_cluster_gets_another_size(
    farm: Farm, namespace: str, config: Path, changed: Path
) -> None:
    cluster = llmops.up("queued").wait(timeout_s=400)
    uid = head(farm, namespace)
    run = submitted(cluster, config, changed)
    for replicas in (3, 1):
        preview = cluster.preview("scale")
        assert "other pods keep running" in preview.summary
        assert (preview.stops, preview.needs_confirmation) == ((), False)
        cluster.scale(workers={"cpu": replicas}, wait=True)
        until(lambda size=replicas: num_workers(farm, namespace) == size)
        until(lambda size=replicas: cluster.info.workers_ready == size)
        goes_on(run)

    preview = cluster.preview("suspend")
    assert "so the head keeps running" in preview.summary
    of_run, of_pods = preview.stops
    assert of_run.startswith(f"run {run.id} ")
    assert of_run.endswith(", unless all of its workers are on the head")
    assert of_pods == "1 worker pod"
    cluster.suspend()
    until(lambda: cluster.info.state == "stopped" and not num_workers(farm, namespace))
    goes_on(run)
    assert cluster.preview("resume").stops == ()
    cluster.resume(wait=True)
    assert cluster.info.workers_ready == 1
    goes_on(run)

    changed.touch()
    assert run.wait(400) == "SUCCEEDED", run.logs()[-3000:]
    assert head(farm, namespace) == uid
    assert_undisturbed(run)


def assert_undisturbed(run: llmops.Run) -> None:
    """Its journal has each step once, and its processes were on one node from begin to end."""
    assert trained(run) == [*range(1, STEPS + 1)]
    assert gaps(run) == []
    events = run.events()
    assert len({event.node for event in events if isinstance(event, HoldEvent)}) == 1
    assert not any(isinstance(event, RestartEvent) for event in events)
    assert (run.folder.output / "adapter_model.safetensors").is_file()


@pytest.mark.nightly
@pytest.mark.parametrize("farm", [False], indirect=True)
def test_without_elastic_jobs_what_only_the_pods_have_comes_home_first(
    farm: Farm,
    namespace: str,
    config: Path,
    changed: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    cluster = llmops.up("queued").wait(timeout_s=400)
    uid = head(farm, namespace)
    # Nobody follows this run, so its journal and its adapter are in its pods only.
    done = cluster.submit(config, overrides=[*ON_HEAD, "training.max_steps=2"])
    until(lambda: ended(cluster, done))
    adapter = done.folder.output / "adapter_model.safetensors"
    assert not adapter.exists()
    run = submitted(cluster, config, changed)

    preview = cluster.preview("scale")
    assert "deletes all of its pods, also the head" in preview.summary
    assert any(line.startswith(f"run {run.id} ") for line in preview.stops)
    assert preview.needs_confirmation
    words = ("scale", "queued", "--workers", "cpu=2")
    assert call(*words) == 1
    assert f"Stops: run {run.id} " in (reported := capsys.readouterr().err)
    assert "Try: llmops scale queued --workers cpu=2 --yes" in reported
    goes_on(run)
    assert head(farm, namespace) == uid

    seen = steps(run)
    assert call(*words, "--yes") == 0, capsys.readouterr().err
    assert head(farm, namespace) not in ("", uid)
    assert num_workers(farm, namespace) == 2
    assert adapter.is_file()
    assert trained(done) == [1, 2]
    assert done.state == "SUCCEEDED"
    until(lambda: run.state == "FAILED")
    assert trained(run) == [*range(1, len(trained(run)) + 1)]
    assert len(trained(run)) >= seen
    assert gaps(run) == gaps(done) == []
    assert "llmops retry" in run.view.remedy
