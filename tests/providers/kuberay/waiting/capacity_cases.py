"""Clusters that wait for quota, images and nodes, and what people read of each."""

from __future__ import annotations

from typing import Any

from llmops_kernel.providers.kuberay.fit.observation import ClusterObservation
from tests.providers.kuberay.observations import (
    IMAGE,
    container_waits,
    event,
    head,
    node,
    observation,
    pod,
    pod_event,
    raycluster,
    unscheduled,
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


def one(w: dict[str, Any], **kw: Any) -> ClusterObservation:
    """A cluster of a ready head and one worker."""
    return observation(raycluster(replicas=1), pods=[head(), w], **kw)


OF_CAPACITY: dict[str, tuple[ClusterObservation, str, str, str, bool]] = {
    "quota of pods and GPUs": (
        observation(pods=[], events=[event("FailedToCreateHeadPod", f"Failed to create: {QUOTA}")]),
        "The head waits: quota compute of the namespace is exceeded: pods is at 10 of 10, 1 more"
        " requested"
        "; requests.nvidia.com/gpu is at 16 of 16, 8 more requested",
        "kubectl describe resourcequota compute",
        "quota",
        True,
    ),
    "quota of a cluster without a status": (
        observation(
            raycluster(status={}),
            pods=[],
            events=[event("FailedToCreateHeadPod", f"Failed to create: {QUOTA}")],
        ),
        "The head waits: quota compute of the namespace is exceeded",
        "kubectl describe resourcequota compute",
        "quota",
        True,
    ),
    "admission policy of the API server": (
        observation(
            raycluster(status={}),
            pods=[],
            events=[
                event(
                    "FailedToCreateHeadPod",
                    'Failed to create head Pod team/c-head: pods "c-head" is forbidden:'
                    " ValidatingAdmissionPolicy 'no-latest' with binding 'no-latest-all' denied"
                    " request: images need a version",
                )
            ],
        ),
        "The head waits: admission policy no-latest denied the request: images need a version",
        "kubectl get validatingadmissionpolicy no-latest",
        "policy",
        True,
    ),
    "a service that cannot be created": (
        observation(
            raycluster(status={}), pods=[], events=[event("FailedToCreateService", "quota")]
        ),
        "The operator reports a failure (FailedToCreateService): quota",
        "llmops cluster apply",
        "operator",
        True,
    ),
    "quota told by the condition only": (
        observation(
            raycluster(
                status={
                    "observedGeneration": 1,
                    "conditions": [{"type": "ReplicaFailure", "status": "True", "message": QUOTA}],
                }
            ),
            pods=[head(), pod("w0", ready=True)],
        ),
        "1 of 2 workers waits: quota compute of the namespace is exceeded",
        "request less",
        "quota",
        True,
    ),
    "priority class": (
        observation(
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
        "the registry rejected pull secret regcred",
        "renew it",
        "image",
        True,
    ),
    "image without a secret": (
        one(pod(node="n0", **container_waits("ErrImagePull", DENIED))),
        "the registry requires authentication, and the pods have no image pull secret",
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
        "the node cannot reach the registry (dial tcp: lookup registry.example: no such host)",
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
        "request less",
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
        "wait until other workloads end",
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
        "no node accepts the pod: 1 node has no label pool=h100",
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
        "no node accepts the pod: 2 nodes have the taint gpu=yes:NoSchedule",
        "tolerations",
        "capacity",
        True,
    ),
    "nodes hidden": (
        one(unscheduled(), denied=("nodes",)),
        "the scheduler found no node: 0/1 nodes are available: 1 Insufficient nvidia.com/gpu.",
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
        "the autoscaler will not add nodes: 1 max node group size reached",
        "raise the maximum",
        "capacity",
        True,
    ),
}
