"""Puts a RayCluster into the stand-in whose head is a server of the test."""

from __future__ import annotations

import base64
from typing import Any

from llmops_kernel.providers.kuberay.api.paths import pods_path
from tests.k8s.standin.process import StandIn

Obj = dict[str, Any]
CONTAINER = {
    "name": "ray-head",
    "image": "rayproject/ray:2.60.0",
    "ports": [{"name": "dashboard", "containerPort": 8265}],
}


def put_cluster(
    standin: StandIn, namespace: str, *, port: int, name: str = "lab", token: str | None = "right"
) -> Obj:
    """The RayCluster, with its head pod, service and Secret as the operator makes them."""
    auth = {"authOptions": {"mode": "token"}} if token else {}
    group = {"rayStartParams": {}, "template": {"spec": {"containers": [CONTAINER]}}}
    raycluster = {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"rayVersion": "2.60.0", "headGroupSpec": group, **auth},
        "status": {"head": {"serviceName": f"{name}-head-svc"}},
    }
    made = standin.put(raycluster)
    put_head(standin, namespace, port=port, name=name)
    standin.put(
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": f"{name}-head-svc", "namespace": namespace},
            "spec": {
                "clusterIP": "None",
                "publishNotReadyAddresses": True,
                "selector": {"ray.io/cluster": name, "ray.io/node-type": "head"},
                "ports": [{"name": "dashboard", "port": 8265, "targetPort": 8265}],
            },
        }
    )
    if token:
        put_token(standin, namespace, token, name=name)
    return made if made.get("kind") == "RayCluster" else raycluster


def put_head(
    standin: StandIn, namespace: str, *, port: int, name: str = "lab", pod: str = ""
) -> None:
    standin.put(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": pod or f"{name}-head",
                "namespace": namespace,
                "labels": {"ray.io/cluster": name, "ray.io/node-type": "head"},
                "annotations": {"standin/address": f"127.0.0.1:{port}"},
            },
            "spec": {"nodeName": "node-1", "containers": [CONTAINER]},
            "status": {
                "phase": "Running",
                "podIP": "10.0.0.7",
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        }
    )


def put_token(standin: StandIn, namespace: str, token: str, *, name: str = "lab") -> None:
    standin.put(
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {
                "name": name,
                "namespace": namespace,
                "labels": {"ray.io/cluster": name},
            },
            "data": {"auth_token": base64.b64encode(token.encode()).decode()},
        }
    )


def drop_head(standin: StandIn, namespace: str, *, pod: str = "lab-head") -> None:
    with standin.client() as client:
        body = {"gracePeriodSeconds": 0}
        client.request("DELETE", pods_path(namespace, pod), json=body).raise_for_status()
