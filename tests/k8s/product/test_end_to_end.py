"""From `up` to `delete` on Kubernetes, through the API server, with the calls of the local case.

Real are: the client, the tunnel, Ray with its token, the training. Stand-ins are: the API server,
KubeRay's operator and the kubelets; so nothing is said here of images or of a pod's network.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import llmops_kernel as llmops
from llmops_kernel.metrics.events import ProcessEvent
from tests.k8s.standin.farm import Farm
from tests.k8s.standin.process import StandIn
from tests.k8s.support.changed_template import user_in
from tests.k8s.support.user_namespace import of_this_process
from tests.tiny_training import slow_hooks, write_training
from tests.waiting import until

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.beside, pytest.mark.timeout(1200)]
ROOT = Path(__file__).parents[3]
STEP_S = 0.3
"""Each step takes so much longer, so that a run can be looked at."""


@pytest.fixture
def farm(
    standin: StandIn, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Farm]:
    """A Kubernetes that this user's kubeconfig leads to; the current folder has the templates."""
    templates = user_in(standin, monkeypatch, namespace=namespace, folder=tmp_path)
    shutil.copytree(ROOT / "cluster_templates", templates, dirs_exist_ok=True)
    with Farm(standin, mode="real", grace_s=1) as running:
        yield running
    assert running.processes() == []


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LLMOPS_HOME", str(of_this_process(tmp_path) / "home"))
    return write_training(
        tmp_path / "workspace",
        "lora",
        hooks=slow_hooks(STEP_S),
        optimizer={"learning_rate": 2e-3},
        training={"max_steps": 12},
        checkpoint={"every_steps": 6},
    )


def test_the_loop_of_a_cluster_on_kubernetes(farm: Farm, namespace: str, config: Path):
    began_s = time.monotonic()
    cluster = llmops.up("kind-cpu")
    assert time.monotonic() - began_s < 15
    assert cluster.info.state == "starting"
    cluster.wait(timeout_s=400)
    assert cluster.info.is_ready
    assert (cluster.info.workers_ready, cluster.info.workers_wanted) == (1, 1)
    assert llmops.up("kind-cpu").info.created_s == cluster.info.created_s

    first = cluster.submit(config)
    follow(first)
    assert first.wait(400) == "SUCCEEDED"
    whole(first)

    cluster.scale(workers={"cpu": 2}, wait=True)
    assert cluster.info.workers_ready == 2

    cluster.suspend()
    until(lambda: cluster.info.state == "stopped")
    until(lambda: not farm.processes())
    whole(first)  # Its Ray is gone; the journal, log and record are here.
    assert "train" in first.logs()

    cluster.resume(wait=True)
    second = first.resubmit(learning_rate=1e-3)
    assert second.wait(400) == "SUCCEEDED"
    whole(second)
    assert forked(second) == {"driver": True, "worker": True}
    assert ("optimizer.learning_rate", 2e-3, 1e-3) in second.diff(first).config

    cluster.delete()
    until(lambda: not farm.pods(namespace) and not farm.processes())
    assert "kind-cpu" not in [other.name for other in llmops.clusters()]
    whole(second)
    for run in (first, second):  # Small outputs were copied before the nodes went.
        assert (run.folder.output / "adapter_model.safetensors").is_file()


def follow(run: llmops.Run) -> None:
    """Steps are seen one after the other while it runs, not all at its end."""
    seen: list[int] = []

    def is_over() -> bool:
        step = run.view.last_step
        if step and (not seen or step > seen[-1]):
            seen.append(step)
        return run.state in ("SUCCEEDED", "FAILED", "STOPPED")

    until(is_over, timeout_s=400)
    assert run.state == "SUCCEEDED", run.logs()[-3000:]
    assert len(seen) >= 4, seen


def forked(run: llmops.Run) -> dict[str, bool]:
    """Whether driver and workers came from the fork servers of their pods."""
    return {event.role: event.warm for event in run.events() if isinstance(event, ProcessEvent)}


def whole(run: llmops.Run) -> None:
    """No line of its journal is missing or there twice."""
    assert list(run.metrics().index) == list(range(1, 13))
    assert run.metrics()["loss"].notna().all()
    streams: dict[str, list[int]] = {}
    for event in run.events():
        streams.setdefault(event.stream, []).append(event.seq)
    # A client, a driver and one worker group write, and who copies the adapter; each counts from 1
    # without gaps.
    assert len(streams.keys() - {"1-observer"}) == 3
    assert {stream: sorted(seqs) for stream, seqs in streams.items()} == {
        stream: list(range(1, len(seqs) + 1)) for stream, seqs in streams.items()
    }
