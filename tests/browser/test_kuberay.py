"""A cluster on Kubernetes in the side bar: what it waits for, scaling, keeping it awake."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.browser.lab import Lab
from tests.browser.lab_page import LabPage
from tests.k8s.standin.farm import Farm
from tests.k8s.standin.process import StandIn
from tests.waiting import until

pytestmark = [
    pytest.mark.browser,
    pytest.mark.slow,
]

NAME, NAMESPACE = "gpu-lab", "training"
TEMPLATE = f"""\
name: {NAME}
provider: kuberay
image: registry.example/ml/ray-train:2.60.0
head: {{cpus: 2, memory: 8Gi}}
worker_groups:
  - {{name: h100, cpus: 16, memory: 100Gi, gpus: 8, replicas: 2, max_replicas: 4}}
idle: {{suspend_after_s: 3600, time_to_live_s: 600}}
"""
ROW = f".llmops-clusters-row[data-cluster='{NAME}']"
WAITING = f"{ROW} .llmops-clusters-waiting"
PATH = f"/apis/ray.io/v1/namespaces/{NAMESPACE}/rayclusters/{NAME}"


@pytest.fixture(scope="module")
def kubernetes() -> Iterator[tuple[StandIn, Farm]]:
    with StandIn() as standin, Farm(standin, mode="simulated", default_node=False) as farm:
        standin.create_namespace(NAMESPACE)
        farm.add_node("cpu-node", cpu="16", memory="64Gi")
        farm.add_node("small-gpu-node", cpu="64", memory="512Gi", gpu=4)
        yield standin, farm


@pytest.fixture
def gpu_lab(
    chromium: Any, kubernetes: tuple[StandIn, Farm], tmp_path: Path, monkeypatch: Any
) -> Iterator[Lab]:
    """A Lab whose kubeconfig names the stand-in; the cluster is asked for on the command line."""
    standin, _ = kubernetes
    config = standin.kubeconfig(tmp_path / "kubeconfig", context="gke-east", namespace=NAMESPACE)
    monkeypatch.setenv("KUBECONFIG", str(config))
    lab = Lab(tmp_path / "lab")
    try:
        lab.wait()
        folder = lab.work / "cluster_templates"
        folder.mkdir()
        (folder / "gpu-lab.yaml").write_text(TEMPLATE)
        command = [sys.executable, "-m", "llmops_kernel.cli.main", "up", NAME, "--no-wait"]
        env = {**os.environ, "LLMOPS_HOME": str(lab.home)}
        done = subprocess.run(
            command, cwd=lab.work, env=env, capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 0, done.stdout + done.stderr
        yield lab
    finally:
        lab.stop()


def raycluster(standin: StandIn) -> dict[str, Any]:
    with standin.client() as http:
        answer = http.get(PATH)
        answer.raise_for_status()
        found: dict[str, Any] = answer.json()
        return found


def test_what_it_waits_for_and_what_can_be_done(
    gpu_lab: Lab, kubernetes: tuple[StandIn, Farm], lab_page: Any
) -> None:
    standin, farm = kubernetes
    tab = LabPage(lab_page, gpu_lab)
    tab.open()
    tab.command("llmops:show-clusters")
    try:
        _waits(lab_page)
        tab.shots("kuberay-waiting")
        _is_kept(lab_page, standin)
        _is_scaled(lab_page, standin)
        tab.shots("kuberay-details")
        _gets_a_node(lab_page, farm)
    except BaseException:
        tab.last_look("kuberay-failed")
        raise


def _waits(page: Any) -> None:
    reason = page.locator(WAITING)
    reason.get_by_text("8").first.wait_for()
    reported = reason.inner_text()
    assert "nvidia.com/gpu" in reported
    assert "Try:" in reported
    assert "workers 0/2" in page.locator(ROW).inner_text()


def _is_kept(page: Any, standin: StandIn) -> None:
    page.locator(ROW).get_by_text("ends in").first.wait_for()
    page.locator(ROW).get_by_role("button", name="Keep 2 h").click()
    key = "llmops.dev/kept-until"
    until(lambda: key in raycluster(standin)["metadata"]["annotations"])
    kept_s = float(raycluster(standin)["metadata"]["annotations"][key])
    assert abs(kept_s - time.time() - 7200) < 60
    page.locator(ROW).get_by_text("kept for").first.wait_for()


def _is_scaled(page: Any, standin: StandIn) -> None:
    page.locator(f"{ROW} .llmops-clusters-open").click()
    page.locator(f"{ROW} .llmops-clusters-groups").wait_for()
    page.locator(ROW).get_by_role("button", name="Scale").first.click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Workers of h100").fill("1")
    dialog.get_by_role("button", name="Scale").click()

    def replicas() -> int:
        return int(raycluster(standin)["spec"]["workerGroupSpecs"][0]["replicas"])

    until(lambda: replicas() == 1, report=lambda: json.dumps(raycluster(standin)["spec"])[:500])
    page.locator(ROW).get_by_text("workers 0/1").wait_for()


def _gets_a_node(page: Any, farm: Farm) -> None:
    farm.add_node("big-gpu-node", cpu="64", memory="512Gi", gpu=8)
    page.locator(ROW).get_by_text("workers 1/1").wait_for()
    assert "no node" not in page.locator(ROW).inner_text()
