"""`llmops` and the Python functions for clusters on Kubernetes."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

import llmops_kernel as llmops_api
from llmops_kernel.providers.local.record import cluster_folder
from llmops_kernel.providers.protocol import ClusterState
from tests.cli.conftest import call
from tests.k8s.standin.farm import Farm
from tests.providers.kuberay.conftest import Cloud
from tests.providers.kuberay.life.test_denials import as_user_without
from tests.providers.local.test_actions import FULL, defined

Run = Callable[..., tuple[int, str, str]]
pytestmark = pytest.mark.usefixtures("farm")


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def run_command(*arguments: str) -> tuple[int, str, str]:
        code = call(*arguments)
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return run_command


@pytest.fixture
def template(cloud: Cloud, tmp_path: Path) -> Path:
    path = tmp_path / "one.yaml"
    path.write_text(yaml.safe_dump(cloud.template().model_dump(mode="json")))
    return path


def test_up_waits_with_a_line_for_each_change(run: Run, template: Path, cloud: Cloud) -> None:
    code, out, err = run("up", str(template))
    assert code == 0, err
    assert "READY" in out
    assert "2 of 2 ready" in out
    assert f"standin/{cloud.namespace}" in out
    assert "Creating RayCluster one" in err
    assert "workers" in err


def test_up_without_waiting_then_status_shows_what_it_waits_for(
    run: Run, tmp_path: Path, cloud: Cloud
) -> None:
    group = {"name": "w", "cpus": "5000", "memory": "2Gi", "replicas": 1}
    path = tmp_path / "one.yaml"
    data = cloud.template(worker_groups=[group]).model_dump(mode="json")
    path.write_text(yaml.safe_dump(data))
    code, out, _ = run("up", str(path), "--no-wait")
    assert code == 0
    assert "llmops status one" in out
    deadline_s = time.monotonic() + 60
    while True:
        code, out, _ = run("status", "one")
        assert code == 1
        # The remedy comes with the scheduler's event, a moment after the pod's own state.
        if ("1 of 1 worker" in out and "Try:" in out) or time.monotonic() > deadline_s:
            break
        time.sleep(0.3)
    assert "1 of 1 worker" in out
    assert "Try:" in out
    _, listed, _ = run("ls")
    assert "0 of 1" in listed
    assert "one: " in listed


def test_scale_ls_and_delete(run: Run, template: Path, cloud: Cloud) -> None:
    assert run("up", str(template))[0] == 0
    code, out, err = run("scale", "one", "--workers", "w=3", "--yes")
    assert code == 0, err
    assert "3 of 3 ready" in out
    code, _, err = run("scale", "one", "--workers", "w=9")
    assert code == 1
    assert "may have 0 to 4 replicas, not 9" in err
    assert "Changes the number of pods" not in err, "it is refused before the preview"
    code, _, err = run("scale", "one", "--num-cpus", "2")
    assert (code, "is scaled by worker group: w (3)" in err) == (1, True)
    assert "Changes the number of pods" not in err
    code, _, err = run("scale", "one", "--workers", "w3", "--yes")
    assert code == 2
    assert "GROUP=NUMBER" in err
    code, out, _ = run("ls", "--json")
    (info,) = json.loads(out)
    assert (info["name"], info["workers_ready"], info["provider"]) == ("one", 3, "kuberay")
    code, _, err = run("delete", "one", "--yes", "--force")
    assert code == 0, err
    assert "No cluster" in run("ls")[1]


def test_an_apply_that_is_refused_asks_for_no_confirmation(
    run: Run, cloud: Cloud, tmp_path: Path
) -> None:
    """What cannot be changed, what others own, and what this user has no right to."""
    path = tmp_path / "one.yaml"

    def written(**fields: Any) -> str:
        data = cloud.template(**fields).model_dump(mode="json")
        path.write_text(yaml.safe_dump(data))
        return str(path)

    assert run("up", written(), "--no-wait")[0] == 0
    extra = {"raycluster": {"upgradeStrategy": {"type": "Recreate"}}}
    env = {"env": {"NCCL_DEBUG": "INFO"}}
    cloud.patch("one", {"spec": {"rayVersion": "2.59.0"}}, manager="kubectl-edit")
    code, _, err = run("cluster", "apply", written(**extra, **env))
    assert code == 1
    assert "was not changed: kubectl-edit owns fields that this changes" in err
    assert "needs confirmation" not in err
    provider = as_user_without(cloud, "patch", "rayclusters")
    assert provider.get("one").name == "one"
    code, _, err = run("cluster", "apply", written(**extra, **env), "--force")
    assert code == 1
    assert "cannot be changed to match the template: Needs patch on rayclusters" in err
    assert "needs confirmation" not in err


def test_rights_that_are_answered_late_are_waited_for_before_a_preview(
    run: Run, cloud: Cloud, template: Path
) -> None:
    as_user_without(cloud, "patch", "rayclusters")
    with cloud.standin.faulty("slow", seconds=1.5, path="selfsubjectaccessreviews"):
        code, _, err = run("suspend", "one")
    assert code == 1
    assert "Cannot suspend cluster 'one': needs patch on rayclusters" in err
    assert "Deletes all pods" not in err


def test_an_api_server_that_is_away_is_reported_beside_the_list(
    run: Run, cloud: Cloud, template: Path, tmp_path: Path
) -> None:
    """Local clusters are listed, and a script sees that the list is not whole."""
    assert run("up", str(template), "--no-wait")[0] == 0
    text = cloud.kubeconfig.read_text().replace(cloud.standin.url, "https://127.0.0.1:1")
    cloud.kubeconfig.write_text(text)
    code, out, err = run("ls")
    assert code == 1
    assert "cannot be reached" in err
    assert out == ""  # Nobody knows whether there is none.
    folder = cluster_folder(cloud.home, "lab")
    folder.create()
    folder.write(defined(tmp_path / "gone", FULL).model_copy(update={"stopped_s": 1.0}))
    code, out, err = run("ls", "--json")
    assert (code, [info["name"] for info in json.loads(out)]) == (1, ["lab"])
    assert "cannot be reached" in err


def test_in_python_up_returns_at_once_and_the_handle_waits(
    template: Path, cloud: Cloud, farm: Farm
) -> None:
    lines: list[str] = []
    began_s = time.monotonic()
    cluster = llmops_api.up(template, progress=lines.append)
    assert time.monotonic() - began_s < 15.0
    assert lines
    assert cluster.info.state in (ClusterState.STARTING, ClusterState.READY)
    assert cluster.wait(timeout_s=30, progress=lines.append).info.is_ready
    assert "one: ready" in repr(cluster)
    assert "one: ready" in repr(llmops_api.clusters())
    cluster.keep(for_s=3600)
    assert cluster.info.kept_until_s is not None
    cluster.scale(workers={"w": 1}, wait=True)
    assert cluster.info.workers_ready == 1
