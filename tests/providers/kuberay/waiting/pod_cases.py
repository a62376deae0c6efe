"""Clusters that wait for what their pods need, and for the operator; what people read of each."""

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
    stamp,
    unscheduled,
)
from tests.providers.kuberay.waiting.capacity_cases import one


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


OF_PODS: dict[str, tuple[ClusterObservation, str, str, str, bool]] = {
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
        "its container was killed because it exceeded its memory, restarted 4 times",
        "increase `memory`",
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
        "the pod was evicted from its node (Evicted: The node was low on resource:"
        " ephemeral-storage.)",
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
        observation(raycluster(status={}), events=[]),
        "No KubeRay operator has processed it in 60 s: it has no status and no event",
        "kuberay-operator kuberay/kuberay-operator",
        "operator",
        True,
    ),
    "operator refused": (
        observation(
            raycluster(status={}),
            events=[event("InvalidRayClusterSpec", "headGroupSpec should have one container")],
        ),
        "The operator rejects the spec (InvalidRayClusterSpec): headGroupSpec should have one",
        "cluster apply",
        "operator",
        True,
    ),
    "account of the autoscaler": (
        observation(
            raycluster(status={}),
            events=[event("AutoscalerServiceAccountNotFound", "Failed to reconcile")],
        ),
        "The operator rejects the spec (AutoscalerServiceAccountNotFound)",
        "create the ServiceAccount",
        "operator",
        True,
    ),
    "observed generation behind": (
        observation(raycluster(generation=3, status={"observedGeneration": 2})),
        "The operator has not processed the latest change yet (generation 2 of 3)",
        "log of the KubeRay operator",
        "operator",
        False,
    ),
    "Ray silent": (
        observation(
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
        observation(
            raycluster(
                deletionTimestamp=stamp(40), finalizers=["ray.io/gcs-ft-redis-cleanup-finalizer"]
            )
        ),
        "Its deletion has been in progress for 40 s; blocked by finalizer"
        " ray.io/gcs-ft-redis-cleanup-finalizer",
        "Redis",
        "deletion",
        False,
    ),
    "namespace terminating": (
        observation(namespace={"status": {"phase": "Terminating"}}, pods=[head(ready=False)]),
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
        f"1 of 1 worker waits: the node is pulling image {IMAGE} for 90 s",
        "",
        "progress",
        False,
    ),
    "Ray's own demand": (
        observation(
            raycluster(replicas=1),
            pods=[head(), pod(ready=True)],
            ray_status={
                "data": {
                    "clusterStatus": {"loadMetricsReport": {"resourceDemand": [[{"GPU": 1.0}, 8]]}}
                }
            },
        ),
        "Ray has pending resource demands: 8 x {1 GPU}",
        "llmops scale",
        "demand",
        False,
    ),
}
