"""Objects of clusters that run, as the operator and the kubelets would have left them."""

from __future__ import annotations

from typing import Any

MANY = "many"
BIG = "big"
GPUS_PER_POD = 8
Body = dict[str, Any]
_SINCE = "2026-01-01T00:00:00Z"
_IMAGE = "rayproject/ray:2.60.0"
_PORTS = [{"name": "dashboard", "containerPort": 8265}]


def one_of_many(number: int, address: str) -> list[Body]:
    """Seven of ten are ready, two are suspended, one starts."""
    name, kind = f"team-{number:03}", number % 10
    if kind >= 8:
        return [raycluster(name, MANY, replicas=2, ready=0, suspended=True)]
    if kind == 7:
        return [raycluster(name, MANY, replicas=2, ready=1)]
    return [
        raycluster(name, MANY, replicas=2, ready=2),
        head_pod(name, MANY, address),
        head_service(name, MANY),
    ]


def big_raycluster(workers: int, *, ready: int) -> Body:
    return raycluster(BIG, BIG, replicas=workers, ready=ready)


def raycluster(
    name: str, namespace: str, *, replicas: int, ready: int, suspended: bool = False
) -> Body:
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": f"uid-{name}",
            "generation": 1,
            "labels": {"app.kubernetes.io/managed-by": "llmops-kernel"},
            "creationTimestamp": _SINCE,
        },
        "spec": _spec(replicas, suspended=suspended),
        "status": _status(name, replicas=replicas, ready=ready, suspended=suspended),
    }


def _spec(replicas: int, *, suspended: bool) -> Body:
    resources = {"limits": {"cpu": "96", "memory": "900Gi", "nvidia.com/gpu": str(GPUS_PER_POD)}}
    container = {"image": _IMAGE, "resources": resources}
    head = {"spec": {"containers": [{**container, "name": "ray-head", "ports": _PORTS}]}}
    group = {
        "groupName": "h100",
        "replicas": replicas,
        "minReplicas": 0,
        "maxReplicas": replicas,
        "numOfHosts": 1,
        "rayStartParams": {},
        "template": {"spec": {"containers": [{**container, "name": "ray-worker"}]}},
    }
    return {
        "rayVersion": "2.60.0",
        "suspend": suspended,
        "headGroupSpec": {"rayStartParams": {}, "template": head},
        "workerGroupSpecs": [group],
    }


def _status(name: str, *, replicas: int, ready: int, suspended: bool) -> Body:
    counts = {"desiredWorkerReplicas": replicas, "readyWorkerReplicas": ready}
    return {
        **{field: count for field, count in counts.items() if count},
        "maxWorkerReplicas": replicas,
        "observedGeneration": 1,
        "head": {"serviceName": f"{name}-head-svc"},
        "conditions": [
            condition("RayClusterSuspended", suspended),
            condition("HeadPodReady", not suspended),
        ],
    }


def condition(kind: str, is_so: bool) -> Body:
    return {
        "type": kind,
        "status": "True" if is_so else "False",
        "reason": kind,
        "message": "",
        "lastTransitionTime": _SINCE,
    }


def pod(name: str, namespace: str, cluster: str, *, kind: str, group: str, ready: bool) -> Body:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": f"uid-{name}",
            "creationTimestamp": _SINCE,
            "labels": {
                "ray.io/cluster": cluster,
                "ray.io/node-type": kind,
                "ray.io/group": group,
                "ray.io/is-ray-node": "yes",
            },
        },
        "spec": {"nodeName": f"node-{name}", "containers": [_container()]},
        "status": {
            "phase": "Running",
            "podIP": "10.0.0.1",
            "conditions": [condition("Ready", ready), condition("PodScheduled", True)],
            "containerStatuses": [_container_status(ready=ready)],
        },
    }


def _container() -> Body:
    return {
        "name": "ray-worker",
        "image": _IMAGE,
        "ports": _PORTS,
        "env": [{"name": f"VARIABLE_{n}", "value": "x" * 40} for n in range(20)],
        "resources": {"limits": {"nvidia.com/gpu": str(GPUS_PER_POD)}},
    }


def _container_status(*, ready: bool) -> Body:
    return {
        "name": "ray-worker",
        "ready": ready,
        "started": True,
        "restartCount": 0,
        "image": _IMAGE,
        "imageID": "",
        "state": {"running": {"startedAt": _SINCE}},
    }


def worker_pod(number: int, *, ready: bool) -> Body:
    return pod(f"{BIG}-w-{number}", BIG, BIG, kind="worker", group="h100", ready=ready)


def head_pod(cluster: str, namespace: str, address: str) -> Body:
    name = f"{cluster}-head"
    body = pod(name, namespace, cluster, kind="head", group="headgroup", ready=True)
    body["metadata"]["annotations"] = {"standin/address": address}
    return body


def head_service(cluster: str, namespace: str) -> Body:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": f"{cluster}-head-svc", "namespace": namespace},
        "spec": {
            "clusterIP": "None",
            "selector": {"ray.io/cluster": cluster, "ray.io/node-type": "head"},
            "ports": [{"name": "dashboard", "port": 8265, "targetPort": 8265}],
        },
    }


def node(number: int) -> Body:
    amounts = {"cpu": "96", "memory": "900Gi", "pods": "110", "nvidia.com/gpu": str(GPUS_PER_POD)}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": f"node-{BIG}-w-{number}", "labels": {"accelerator": "h100"}},
        "status": {"allocatable": amounts, "conditions": [condition("Ready", True)]},
    }
