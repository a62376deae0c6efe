"""What an edit would do, told before it is done: against hand-written expectations."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from llmops_kernel.config.models.kuberay import KubeRayTemplate
from llmops_kernel.providers.capabilities import EditEffect, EditKind
from llmops_kernel.providers.kuberay.apply import with_additions
from llmops_kernel.providers.kuberay.edit_effect import effect_of_edit
from llmops_kernel.providers.kuberay.render.manifest import render

JOBS = ("run lora-0001", "run lora-0002")
PODS = {"head": 1, "h100": 2, "data": 3}
BASE: dict[str, Any] = {
    "name": "lab",
    "image": "registry.example/ray:1",
    "worker_groups": [
        {"name": "h100", "host_type": "a3-highgpu-8g", "replicas": 2, "max_replicas": 8},
        {"name": "data", "cpus": 4, "memory": "8Gi", "replicas": 3, "max_replicas": 8},
    ],
}


def rendered(**changes: Any) -> dict[str, Any]:
    data = copy.deepcopy(BASE) | changes
    return render(KubeRayTemplate.model_validate(data), namespace="ml").raycluster


def live(**changes: Any) -> dict[str, Any]:
    """As the API server gives it back: defaults filled in, fields of others beside ours."""
    found = copy.deepcopy(rendered(**changes))
    found["metadata"] |= {"uid": "u", "resourceVersion": "7", "generation": 3}
    found["spec"]["suspend"] = False
    for group in found["spec"]["workerGroupSpecs"]:
        group |= {"scaleStrategy": {"workersToDelete": []}, "priority": 0}
    for port in found["spec"]["headGroupSpec"]["template"]["spec"]["containers"][0]["ports"]:
        port["protocol"] = "TCP"
    return found


def groups(**h100: Any) -> list[dict[str, Any]]:
    first, second = copy.deepcopy(BASE["worker_groups"])
    return [first | h100, second]


def effect(new: dict[str, Any], old: dict[str, Any] | None = None, **known: Any) -> EditEffect:
    known = {"jobs": JOBS, "pods": PODS} | known
    return effect_of_edit(old or live(), new, **known)


def test_the_same_template_changes_nothing():
    found = effect(rendered())
    assert found.kind is EditKind.NOTHING
    assert not found.lines
    assert not found.needs_confirmation


def test_more_replicas_restart_nothing():
    found = effect(rendered(worker_groups=groups(replicas=4)))
    assert found.kind is EditKind.LIVE
    assert found.sentence == "nothing restarts: group h100: replicas 2 -> 4"
    assert not found.stops


def test_fewer_replicas_name_the_pods_that_end():
    found = effect(rendered(worker_groups=groups(replicas=0)))
    assert found.kind is EditKind.LIVE
    assert found.stops == ("2 pods of group h100",)
    assert found.sentence == "2 pods of group h100 end: group h100: replicas 2 -> 0"
    assert found.needs_confirmation
    assert "wait until no job runs" in found.safe_way


def test_an_image_of_one_group_reaches_only_new_pods():
    found = effect(rendered(worker_groups=groups(image="registry.example/ray:2")))
    assert found.kind is EditKind.NEW_PODS
    assert found.sentence == (
        "only new pods of group h100 get the new image; 2 running pods keep the old"
    )
    assert found.lines == ("group h100: image registry.example/ray:1 -> registry.example/ray:2",)
    assert not found.stops
    assert "suspend, apply, resume" in found.safe_way


def test_the_image_of_all_is_not_the_heads_until_it_is_recreated():
    found = effect(rendered(image="registry.example/ray:2"))
    assert found.kind is EditKind.NEW_PODS
    assert "groups h100, data get the new image; 5 running pods keep the old" in found.sentence
    assert "the head gets the new image only when it is recreated" in found.sentence


def test_recreate_deletes_the_head_and_the_jobs():
    raw = {"upgradeStrategy": {"type": "Recreate"}}
    found = effect(rendered(raycluster=raw, env={"A": "1"}), live(raycluster=raw))
    assert found.kind is EditKind.RESTART
    assert found.sentence.startswith(
        "deletes the head, 5 worker pods and 2 running jobs (run lora-0001, run lora-0002)"
    )
    assert found.stops == ("the head", "5 worker pods", *JOBS)
    assert found.safe_way.startswith("stop the runs")


@pytest.mark.parametrize(
    ("new", "kind"),
    [
        ({"worker_groups": groups(replicas=4)}, EditKind.LIVE),
        ({"worker_groups": groups(max_replicas=9, min_replicas=1)}, EditKind.LIVE),
        ({"worker_groups": groups(tolerations=[{"key": "a", "operator": "Exists"}])}, "new-pods"),
        ({"worker_groups": groups(idle_timeout_s=9)}, EditKind.RESTART),
        ({"autoscaling": True}, EditKind.RESTART),
        ({"worker_groups": BASE["worker_groups"][:1]}, EditKind.RESTART),
    ],
)
def test_what_recreate_compares(new: dict[str, Any], kind: EditKind):
    """KubeRay's hash leaves out replica counts and tolerations, nothing else."""
    raw = {"upgradeStrategy": {"type": "Recreate"}}
    assert effect(rendered(raycluster=raw, **new), live(raycluster=raw)).kind == kind


def test_recreate_asked_for_now_applies_what_was_left_undone():
    found = effect(rendered(raycluster={"upgradeStrategy": {"type": "Recreate"}}))
    assert found.kind is EditKind.RESTART
    assert "earlier edits" in found.sentence


@pytest.mark.parametrize(
    ("old", "new", "field"),
    [
        (
            {"managed_by": "ray.io/kuberay-operator"},
            {"managed_by": "kueue.x-k8s.io/multikueue", "queue": "q"},
            "managedBy",
        ),
        (
            {"raycluster": {"gcsFaultToleranceOptions": {"backend": "redis"}}},
            {"raycluster": {"gcsFaultToleranceOptions": {"backend": "rocksdb"}}},
            "gcsFaultToleranceOptions.backend",
        ),
    ],
)
def test_what_the_api_server_would_refuse(old: dict[str, Any], new: dict[str, Any], field: str):
    found = effect(rendered(**new), live(**old))
    assert found.kind is EditKind.REPLACE
    assert f"{field} cannot be changed" in found.sentence
    assert "2 running jobs" in found.sentence
    assert "llmops delete" in found.safe_way


def test_another_name_is_another_cluster():
    found = effect(rendered(name="other"))
    assert found.kind is EditKind.REPLACE
    assert "name would be other instead of lab" in found.sentence


def test_setting_managed_by_for_the_first_time_is_allowed():
    found = effect(rendered(managed_by="ray.io/kuberay-operator"))
    assert found.kind is not EditKind.REPLACE


def test_jobs_that_cannot_be_asked_are_reported_as_such():
    raw = {"upgradeStrategy": {"type": "Recreate"}}
    new, old = rendered(raycluster=raw, env={"A": "1"}), live(raycluster=raw)
    found = effect(new, old, jobs=None)
    assert "whatever runs on it (its jobs are unknown)" in found.sentence
    assert found.needs_confirmation
    idle = effect(new, old, jobs=())
    assert "no running job" in idle.sentence
    assert "nothing runs now" in idle.safe_way


def test_a_suspended_cluster_has_no_pods_to_lose():
    old = live()
    old["spec"]["suspend"] = True
    found = effect(rendered(image="registry.example/ray:2"), old, pods={}, jobs=())
    assert found.kind is EditKind.LIVE
    assert "no pods" in found.sentence
    assert found.lines


def test_kueue_admits_other_numbers_again():
    new = rendered(queue="team-a", worker_groups=groups(replicas=4))
    found = effect(new, live(queue="team-a"))
    assert found.kind is EditKind.RESTART
    assert "Kueue must admit the changed pods again" in found.sentence


def test_kueue_resizes_an_elastic_cluster_while_it_runs():
    old = live(queue="team-a")
    new = rendered(queue="team-a", worker_groups=groups(replicas=4))
    # The annotation alone is a wish: Kueue answers with its scheduling gate.
    assert effect(new, old).kind is EditKind.RESTART
    pod = old["spec"]["headGroupSpec"]["template"]["spec"]
    pod["schedulingGates"] = [{"name": "kueue.x-k8s.io/elastic-job"}]
    assert effect(new, old).kind is EditKind.LIVE


def elastic(**changes: Any) -> dict[str, Any]:
    old = live(queue="team-a", **changes)
    for group in (old["spec"]["headGroupSpec"], *old["spec"]["workerGroupSpecs"]):
        group["template"]["spec"]["schedulingGates"] = [{"name": "kueue.x-k8s.io/elastic-job"}]
    return old


@pytest.mark.parametrize(
    "worker_groups",
    [
        BASE["worker_groups"][:1],
        [*BASE["worker_groups"], {"name": "more", "cpus": 2, "memory": "4Gi", "replicas": 1}],
    ],
    ids=["a group goes", "a group comes"],
)
def test_another_worker_group_of_an_elastic_cluster_replaces_every_pod(
    worker_groups: list[dict[str, Any]],
) -> None:
    found = effect(rendered(queue="team-a", worker_groups=worker_groups), elastic())
    assert found.kind is EditKind.RESTART
    assert "the head" in found.stops
    assert "admits the whole cluster again" in found.sentence
    assert found.safe_way


def test_kueue_takes_a_first_priority_only_while_suspended_and_never_gives_one_back() -> None:
    first = effect(rendered(queue="team-a", queue_priority="high"), elastic())
    assert first.kind is EditKind.RESTART
    assert "only while the cluster is suspended" in first.sentence
    removed = effect(rendered(queue="team-a"), elastic(queue_priority="high"))
    assert removed.kind is EditKind.REPLACE
    assert "queue_priority" in removed.sentence
    other = effect(rendered(queue="team-a", queue_priority="low"), elastic(queue_priority="high"))
    assert other.kind not in (EditKind.RESTART, EditKind.REPLACE)


def test_another_queue_needs_a_suspended_cluster():
    found = effect(rendered(queue="team-b"), live(queue="team-a"))
    assert found.kind is EditKind.RESTART
    assert "only while the cluster is suspended" in found.sentence


def test_pods_of_a_group_that_goes_are_left_behind():
    found = effect(rendered(worker_groups=BASE["worker_groups"][:1]))
    assert found.kind is EditKind.LIVE
    assert "3 running pods of group data remain" in found.sentence
    assert "replicas: 0" in found.safe_way


def test_the_autoscalers_replicas_are_its_own():
    old = live(autoscaling=True)
    old["spec"]["workerGroupSpecs"][0]["replicas"] = 7
    assert effect(rendered(autoscaling=True), old).kind is EditKind.NOTHING
    old = live()
    old["spec"]["workerGroupSpecs"][0]["replicas"] = 7
    assert effect(rendered(), old, pods={"head": 1, "h100": 7}).stops == ("5 pods of group h100",)


def test_other_spellings_of_a_quantity_are_no_change():
    old = live()
    container = old["spec"]["workerGroupSpecs"][1]["template"]["spec"]["containers"][0]
    container["resources"]["limits"] = {"cpu": "4000m", "memory": f"{8 * 2**30}"}
    assert effect(rendered(), old).kind is EditKind.NOTHING


def test_fields_of_others_stay_and_ours_go():
    """Outside of lists that are replaced whole an apply takes away only what we own."""
    old = live(service_account="ray")
    old["spec"]["headGroupSpec"]["template"]["spec"]["hostNetwork"] = True
    assert effect(rendered(service_account="ray"), old).kind is EditKind.NOTHING
    ours = {"f:headGroupSpec": {"f:template": {"f:spec": {"f:serviceAccountName": {}}}}}
    fields = {"f:spec": {**ours, "f:workerGroupSpecs": {}}}
    entry = {"manager": "llmops", "operation": "Update", "fieldsV1": fields}
    old["metadata"]["managedFields"] = [entry]
    found = effect(rendered(), old)
    assert "head: serviceAccountName (ray) is removed" in found.lines
    assert "group h100: serviceAccountName (ray) is removed" in found.lines
    assert not any("hostNetwork" in line for line in found.lines)


def admitted() -> dict[str, Any]:
    """As Kueue leaves a cluster that it admitted on a flavor with a node label and a taint."""
    old = live(queue="team-a", worker_groups=groups(tolerations=[{"key": "ours"}]))
    spec = old["spec"]
    for one in (spec["headGroupSpec"], *spec["workerGroupSpecs"]):
        meta, pod = one["template"].setdefault("metadata", {}), one["template"]["spec"]
        meta["labels"] = {**meta.get("labels", {}), "kueue.x-k8s.io/podset": "x"}
        meta["annotations"] = {"kueue.x-k8s.io/workload": "raycluster-lab-1"}
        pod["nodeSelector"] = {**pod.get("nodeSelector", {}), "pool": "h100"}
        pod["tolerations"] = [*pod.get("tolerations", []), {"key": "h100", "operator": "Exists"}]
        pod["schedulingGates"] = [{"name": "kueue.x-k8s.io/elastic-job"}]
    entry = {"manager": "kueue", "operation": "Update"}
    entry["fieldsV1"] = {"f:spec": {"f:workerGroupSpecs": {}}}
    old["metadata"]["managedFields"] = [entry]
    return old


def test_what_kueue_writes_into_pod_templates_is_no_change():
    same = rendered(queue="team-a", worker_groups=groups(tolerations=[{"key": "ours"}]))
    found = effect(same, admitted(), base=same)
    assert found.kind is EditKind.NOTHING, found.lines


def test_beside_what_kueue_wrote_our_changes_are_seen():
    was = rendered(queue="team-a", worker_groups=groups(tolerations=[{"key": "ours"}]))
    new = rendered(queue="team-a", worker_groups=groups(node_selector={"zone": "a"}))
    lines = effect(new, admitted(), base=was).lines
    assert any("tolerations" in line for line in lines)
    assert any("zone" in line for line in lines)
    assert not any("pool" in line or "kueue" in line.replace("elastic", "") for line in lines)


def test_what_a_webhook_added_goes_back_with_the_groups():
    was = rendered(queue="team-a", worker_groups=groups(tolerations=[{"key": "ours"}]))
    old = admitted()
    pod = old["spec"]["workerGroupSpecs"][0]["template"]["spec"]
    pod["containers"].append({"name": "mesh", "image": "registry.example/mesh:1"})
    pod["containers"][0]["env"] = [
        *pod["containers"][0].get("env", []),
        {"name": "FROM_WEBHOOK", "value": "1"},
    ]
    new = rendered(queue="team-a", worker_groups=groups(replicas=4))
    assert not any("mesh" in line for line in effect(new, old, base=was).lines)
    group = with_additions(new["spec"], old["spec"], was["spec"])["workerGroupSpecs"][0]
    sent = group["template"]["spec"]
    assert [one["name"] for one in sent["containers"]] == ["ray-worker", "mesh"]
    assert {"name": "FROM_WEBHOOK", "value": "1"} in sent["containers"][0]["env"]
    assert {"key": "h100", "operator": "Exists"} in sent["tolerations"]
    assert not any(one["key"] == "ours" for one in sent["tolerations"])
    assert sent["nodeSelector"]["pool"] == "h100"
    assert sent["schedulingGates"] == [{"name": "kueue.x-k8s.io/elastic-job"}]
    assert group["template"]["metadata"]["labels"]["kueue.x-k8s.io/podset"] == "x"
    assert group["replicas"] == 4


def test_a_group_may_be_called_like_a_field():
    def named(image: str) -> dict[str, Any]:
        return rendered(worker_groups=[groups(image=image)[0] | {"name": "cpu"}])

    found = effect(named("b"), named("a"), pods={"head": 1, "cpu": 1})
    assert (
        found.sentence
        == "only new pods of group cpu get the new image; 1 running pod keeps the old"
    )


def test_an_idle_policy_alone_restarts_nothing():
    found = effect(rendered(idle={"suspend_after_s": 60}))
    assert found.kind is EditKind.LIVE
    assert found.sentence.startswith("nothing restarts")
