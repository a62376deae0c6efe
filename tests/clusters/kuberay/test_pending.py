"""What people read about a cluster that waits: one row a situation."""

from __future__ import annotations

from typing import Any

import pytest

from llmops_kernel.clusters.kuberay.pending import waiting
from llmops_kernel.clusters.kuberay.world import World
from tests.clusters.kuberay.worlds import (
    IMAGE,
    container_waits,
    event,
    head,
    node,
    pod,
    pod_event,
    raycluster,
    stamp,
    unscheduled,
    world,
)

QUOTA = (
    'pods "c-head-x" is forbidden: exceeded quota: compute, requested: pods=1,'
    "requests.nvidia.com/gpu=8, used: pods=10,requests.nvidia.com/gpu=16,"
    " limited: pods=10,requests.nvidia.com/gpu=16"
)
NOT_FOUND = (
    f'Failed to pull image "{IMAGE}": rpc error: code = NotFound desc = failed to pull and unpack'
    f' image "{IMAGE}": failed to resolve reference: {IMAGE}: not found'
)
DENIED = (
    f'Failed to pull image "{IMAGE}": rpc error: code = Unknown desc = failed to authorize:'
    " failed to fetch oauth token: 401 Unauthorized"
)


def one(w: dict[str, Any], **kw: Any) -> World:
    """A cluster of a ready head and one worker."""
    return world(raycluster(replicas=1), pods=[head(), w], **kw)


def volume(claim: str = "data") -> dict[str, Any]:
    return {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": claim}}]}


def claim(phase: str = "Pending", storage: str = "fast") -> dict[str, Any]:
    return {
        "metadata": {"name": "data"},
        "spec": {"storageClassName": storage},
        "status": {"phase": phase},
    }


def crash(code: int, reason: str = "Error", **kw: Any) -> dict[str, Any]:
    last = {"terminated": {"exitCode": code, "reason": reason, **kw}}
    return container_waits("CrashLoopBackOff", "back-off", lastState=last, restartCount=4)


CASES: dict[str, tuple[World, str, str, str, bool]] = {
    "quota of pods and GPUs": (
        world(pods=[], events=[event("FailedToCreateHeadPod", f"Failed to create: {QUOTA}")]),
        "The head waits: quota compute of the namespace is exceeded: pods is at 10 of 10, 1 more"
        " asked; requests.nvidia.com/gpu is at 16 of 16, 8 more asked",
        "kubectl describe resourcequota compute",
        "quota",
        True,
    ),
    "quota told by the condition only": (
        world(
            raycluster(
                status={
                    "observedGeneration": 1,
                    "conditions": [{"type": "ReplicaFailure", "status": "True", "message": QUOTA}],
                }
            ),
            pods=[head(), pod("w0", ready=True)],
        ),
        "1 of 2 workers waits: quota compute of the namespace is exceeded",
        "ask for less",
        "quota",
        True,
    ),
    "priority class": (
        world(
            pods=[],
            events=[
                event(
                    "FailedToCreateHeadPod",
                    'pods "x" is forbidden: no PriorityClass with name urgent was found',
                )
            ],
        ),
        "The head waits: there is no PriorityClass urgent",
        "kubectl get priorityclasses",
        "priority",
        True,
    ),
    "image not found": (
        one(
            pod(node="n0", **container_waits("ImagePullBackOff", f'Back-off pulling "{IMAGE}"')),
            events=[pod_event("Failed", NOT_FOUND)],
        ),
        f"1 of 1 worker waits: image {IMAGE} cannot be pulled: the registry has no such image",
        "check name and tag",
        "image",
        True,
    ),
    "image with the wrong secret": (
        one(
            pod(
                node="n0",
                spec={"imagePullSecrets": [{"name": "regcred"}]},
                **container_waits("ErrImagePull", DENIED),
            )
        ),
        "the registry refuses pull secret regcred",
        "renew Secret regcred",
        "image",
        True,
    ),
    "image without a secret": (
        one(pod(node="n0", **container_waits("ErrImagePull", DENIED))),
        "the registry wants a login, and the pods name no pull secret",
        "image_pull_secrets",
        "image",
        True,
    ),
    "pull secret that is not there": (
        one(
            pod(
                node="n0",
                spec={"imagePullSecrets": [{"name": "regcred"}]},
                **container_waits("ImagePullBackOff"),
            ),
            events=[pod_event("FailedToRetrieveImagePullSecret", "Unable to retrieve some")],
        ),
        "its pull secret regcred cannot be read",
        "kubectl create secret docker-registry regcred",
        "image",
        True,
    ),
    "image back-off without more": (
        one(pod(node="n0", **container_waits("ImagePullBackOff"))),
        f"image {IMAGE} cannot be pulled (ImagePullBackOff)",
        "image_pull_secrets",
        "image",
        True,
    ),
    "registry out of reach": (
        one(
            pod(
                node="n0",
                **container_waits(
                    "ErrImagePull",
                    "rpc error: code = Unknown desc = dial tcp: lookup registry.example:"
                    " no such host",
                ),
            )
        ),
        "the node does not reach the registry (dial tcp: lookup registry.example: no such host)",
        "proxies",
        "image",
        True,
    ),
    "no node that large": (
        one(unscheduled(), nodes=[node(has={"nvidia.com/gpu": "4"})], node_pods=[]),
        "no node has 8 nvidia.com/gpu (the largest, n0, has 4)",
        "larger nodes",
        "capacity",
        True,
    ),
    "no GPU anywhere": (
        one(unscheduled(), nodes=[node(has={"nvidia.com/gpu": "0"})], node_pods=[]),
        "1 of 1 worker waits: no node has 8 nvidia.com/gpu",
        "ask for less",
        "capacity",
        True,
    ),
    "all GPUs in use": (
        one(
            unscheduled(),
            nodes=[node("a"), node("b")],
            node_pods=[
                pod("x", node="a", asks={"nvidia.com/gpu": "8"}),
                pod("y", node="b", asks={"nvidia.com/gpu": "5"}),
            ],
        ),
        "no node has 8 free nvidia.com/gpu (the best, b, has 3 of 8)",
        "wait until others free it",
        "capacity",
        False,
    ),
    "memory in use": (
        one(
            unscheduled(asks={"memory": "600Gi"}),
            nodes=[node("a")],
            node_pods=[pod("x", node="a", asks={"memory": "700Gi"})],
        ),
        "no node has 600 GiB free memory (the best, a, has 300 GiB of 1000 GiB)",
        "suspend a cluster",
        "capacity",
        False,
    ),
    "label that no node has": (
        one(unscheduled(spec={"nodeSelector": {"pool": "h100"}}), nodes=[node()], node_pods=[]),
        "no node takes the pod: 1 node has no label pool=h100",
        "node_selector",
        "capacity",
        True,
    ),
    "taint that is not tolerated": (
        one(
            unscheduled(),
            nodes=[
                node(
                    name,
                    spec={"taints": [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]},
                )
                for name in "ab"
            ],
            node_pods=[],
        ),
        "no node takes the pod: 2 nodes have the taint gpu=yes:NoSchedule",
        "tolerations",
        "capacity",
        True,
    ),
    "nodes hidden": (
        one(unscheduled(), denied=("nodes",)),
        "the scheduler finds no node: 0/1 nodes are available: 1 Insufficient nvidia.com/gpu.",
        "gpus",
        "capacity",
        False,
    ),
    "autoscaler adds a node": (
        one(
            unscheduled(),
            nodes=[node(has={"nvidia.com/gpu": "4"})],
            node_pods=[],
            events=[pod_event("TriggeredScaleUp", "pod triggered scale-up: [{mig 1->2 (max: 4)}]")],
        ),
        "the autoscaler is adding nodes ([{mig 1->2 (max: 4)}])",
        "wait a few minutes",
        "capacity",
        False,
    ),
    "autoscaler at its maximum": (
        one(
            unscheduled(),
            nodes=[node(has={"nvidia.com/gpu": "4"})],
            node_pods=[],
            events=[
                pod_event(
                    "NotTriggerScaleUp",
                    "pod didn't trigger scale-up: 1 max node group size reached",
                )
            ],
        ),
        "the autoscaler will add none: 1 max node group size reached",
        "maximum raised",
        "capacity",
        True,
    ),
    "claim missing": (
        one(unscheduled(spec=volume()), pvcs=[]),
        "there is no PersistentVolumeClaim data in the namespace",
        "storage.volumes",
        "volume",
        True,
    ),
    "claim pending for its storage class": (
        one(
            unscheduled(spec=volume(), message="pod has unbound immediate PersistentVolumeClaims"),
            pvcs=[claim()],
            events=[
                event(
                    "ProvisioningFailed",
                    'storageclass.storage.k8s.io "fast" not found',
                    about=("PersistentVolumeClaim", "data"),
                )
            ],
        ),
        'volume claim data of storage class fast is not bound: storageclass.storage.k8s.io "fast"'
        " not found",
        "kubectl get storageclass",
        "volume",
        True,
    ),
    "secret missing": (
        one(
            pod(node="n0", **container_waits("CreateContainerConfigError", 'secret "hf" not found'))
        ),
        "there is no Secret hf in the namespace",
        "kubectl create secret generic hf",
        "reference",
        True,
    ),
    "key of a secret missing": (
        one(
            pod(
                node="n0",
                **container_waits(
                    "CreateContainerConfigError", "couldn't find key token in Secret team/hf"
                ),
            )
        ),
        "Secret hf has no key token",
        "under `secrets`",
        "reference",
        True,
    ),
    "config map missing in a mount": (
        one(
            pod(node="n0"),
            events=[
                pod_event(
                    "FailedMount", 'MountVolume.SetUp failed for "w" : configmap "c-warm" not found'
                )
            ],
        ),
        "there is no ConfigMap c-warm in the namespace",
        "kubectl create configmap c-warm",
        "reference",
        True,
    ),
    "crash loop with its last line": (
        one(pod(node="n0", **crash(127)), logs={"w0": "starting\nray: command not found\n"}),
        "its container ended with exit code 127, restarted 4 times: ray: command not found",
        "kubectl logs w0 --previous",
        "crash",
        True,
    ),
    "out of memory": (
        one(pod(node="n0", **crash(137, "OOMKilled"))),
        "its container was killed for memory, restarted 4 times",
        "more `memory`",
        "memory",
        True,
    ),
    "evicted": (
        one(
            pod(
                node="n0",
                phase="Failed",
                reason="Evicted",
                message="The node was low on resource: ephemeral-storage.",
            )
        ),
        "the pod was put off its node (Evicted: The node was low on resource: ephemeral-storage.)",
        "`disk`",
        "evicted",
        False,
    ),
    "node not ready": (
        one(
            pod(node="n0", phase="Running"),
            nodes=[node(ready={"status": "Unknown", "message": "Kubelet stopped posting"})],
        ),
        "node n0 is not ready: Kubelet stopped posting",
        "kubectl describe node n0",
        "node",
        False,
    ),
    "operator absent": (
        world(raycluster(status={}), events=[]),
        "No operator has looked at it in 60 s: it has no status and no event",
        "helm install kuberay-operator",
        "operator",
        True,
    ),
    "operator refused": (
        world(
            raycluster(status={}),
            events=[event("InvalidRayClusterSpec", "headGroupSpec should have one container")],
        ),
        "The operator refuses the spec (InvalidRayClusterSpec): headGroupSpec should have one",
        "apply it",
        "operator",
        True,
    ),
    "account of the autoscaler": (
        world(
            raycluster(status={}),
            events=[event("AutoscalerServiceAccountNotFound", "Failed to reconcile")],
        ),
        "The operator refuses the spec (AutoscalerServiceAccountNotFound)",
        "make the ServiceAccount",
        "operator",
        True,
    ),
    "observed generation behind": (
        world(raycluster(generation=3, status={"observedGeneration": 2})),
        "The operator has not looked at the newest change yet (it is at 2 of 3)",
        "log of the KubeRay operator",
        "operator",
        False,
    ),
    "Ray silent": (
        world(
            raycluster(replicas=1),
            pods=[head(), pod(ready=True)],
            nodes=[node()],
            ray_answers=False,
        ),
        "The head pod is ready, but Ray's API does not answer",
        "services/proxy",
        "ray",
        False,
    ),
    "deleted with a finalizer": (
        world(
            raycluster(
                deletionTimestamp=stamp(40), finalizers=["ray.io/gcs-ft-redis-cleanup-finalizer"]
            )
        ),
        "It is being deleted for 40 s; finalizer ray.io/gcs-ft-redis-cleanup-finalizer holds it",
        "Redis",
        "deletion",
        False,
    ),
    "namespace terminating": (
        world(namespace={"status": {"phase": "Terminating"}}, pods=[head(ready=False)]),
        "Namespace team is being deleted",
        "another namespace",
        "namespace",
        True,
    ),
    "workers wait for the head": (
        one(
            pod(
                node="n0",
                initContainerStatuses=[{"name": "wait-gcs-ready", "state": {"running": {"a": 1}}}],
            )
        ),
        "1 of 1 worker waits: for the head",
        "",
        "head",
        False,
    ),
    "image is being pulled": (
        one(
            pod(node="n0", **container_waits("ContainerCreating")),
            events=[pod_event("Pulling", f'Pulling image "{IMAGE}"', kind="Normal", ago_s=90)],
        ),
        f"1 of 1 worker waits: the node pulls image {IMAGE} for 90 s",
        "",
        "progress",
        False,
    ),
    "Ray's own demand": (
        world(
            raycluster(replicas=1),
            pods=[head(), pod(ready=True)],
            ray_status={
                "data": {
                    "clusterStatus": {"loadMetricsReport": {"resourceDemand": [[{"GPU": 1.0}, 8]]}}
                }
            },
        ),
        "Work waits on Ray for 8 x {1 GPU}",
        "llmops scale",
        "demand",
        False,
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_the_first_reason_says_what_and_what_to_do(case: tuple[World, str, str, str, bool]) -> None:
    given, message, remedy, kind, is_stuck = case
    first = waiting(given)[0]
    assert message in first.message
    assert remedy in first.remedy
    assert (first.kind, first.is_stuck) == (kind, is_stuck)


def test_pods_with_the_same_reason_are_told_of_once() -> None:
    pods = [
        pod("h", kind="head", node="n0", **container_waits("ErrImagePull", NOT_FOUND)),
        *(pod(f"w{i}", node="n0", **container_waits("ErrImagePull", NOT_FOUND)) for i in range(2)),
        pod("w2", ready=True),
    ]
    (only,) = waiting(world(raycluster(replicas=3), pods=pods))
    assert only.message.startswith(f"The head and 2 of 3 workers wait: image {IMAGE}")


def test_the_group_is_named_when_there_are_several() -> None:
    groups = [{"groupName": "a", "replicas": 2}, {"groupName": "b", "replicas": 1}]
    pods = [
        head(),
        pod("a0", group="a", ready=True),
        unscheduled("a1", group="a"),
        pod("b0", group="b", ready=True),
    ]
    found = waiting(
        world(raycluster(groups=groups), pods=pods, nodes=[node()], node_pods=[pod("x", node="n0")])
    )
    assert found[0].message.startswith("1 of 2 workers of group a waits: no node has 8 free")


def test_what_could_not_be_looked_at_is_told_last() -> None:
    found = waiting(one(unscheduled(), denied=("nodes", "events"), silent=("resourcequotas",)))
    assert [reason.kind for reason in found] == ["capacity", "permission", "permission"]
    assert found[1].message.endswith("for lack of rights: nodes, events")
    assert "rbac.yaml" in found[1].remedy


def test_a_complete_cluster_waits_for_nothing_whatever_is_hidden() -> None:
    given = world(
        raycluster(replicas=1), pods=[head(), pod(ready=True)], denied=("nodes",), ray_answers=True
    )
    assert waiting(given) == ()


def test_a_suspended_cluster_waits_for_nothing() -> None:
    assert waiting(world(raycluster(spec={"suspend": True}), pods=[])) == ()


def test_the_faults_of_an_earlier_cluster_of_that_name_are_not_told() -> None:
    old = event("InvalidRayClusterSpec", "bad")
    old["involvedObject"]["uid"] = "another"
    (found,) = waiting(world(raycluster(status={}), events=[old]))
    assert "InvalidRayClusterSpec" not in found.message


def test_an_accepted_spec_is_no_longer_refused() -> None:
    given = world(
        raycluster(replicas=1),
        pods=[head(), pod(ready=True)],
        events=[event("InvalidRayClusterSpec", "bad")],
    )
    assert waiting(given) == ()
