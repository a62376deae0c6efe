"""Names that we write into Kubernetes objects, and names that KubeRay and Kueue use."""

from __future__ import annotations

from typing import Final

GROUP: Final = "ray.io"
VERSION: Final = "v1"
API_VERSION: Final = "ray.io/v1"
KIND: Final = "RayCluster"

FIELD_MANAGER: Final = "llmops"
PREFIX: Final = "llmops.dev/"
MANAGED_BY_LABEL: Final = "app.kubernetes.io/managed-by"
MANAGED_BY: Final = "llmops-kernel"
CLUSTER_NAME_LABEL: Final = "app.kubernetes.io/instance"

TEMPLATE: Final = PREFIX + "template"
"""The whole template as compact JSON; it contains only references to secrets."""
IDLE: Final = PREFIX + "idle"
"""IdlePolicy as JSON."""
KEPT_UNTIL: Final = PREFIX + "kept-until"
"""Unix seconds."""
IDLE_SINCE: Final = PREFIX + "idle-since"
"""Unix seconds, set by a guard."""
RESUMED_AT: Final = PREFIX + "resumed-at"
"""Unix seconds."""
CHOSEN: Final = PREFIX + "chosen"
"""Sentence on why this context got the cluster."""
CREATED_BY: Final = PREFIX + "created-by"
CREATION: Final = PREFIX + "creation"
"""Random: by it `up` knows the cluster that it created although no answer arrived."""
ACCESS: Final = PREFIX + "access"
"""Access as JSON."""
REPLICAS: Final = PREFIX + "replicas"
"""JSON group -> its numbers, stored when scaled to zero."""
RUN: Final = PREFIX + "run"
"""Id of the newest run that a client has followed; what follows is of this run."""
RUN_STATE: Final = PREFIX + "run-state"
RUN_STEP: Final = PREFIX + "run-step"
RUN_LOSS: Final = PREFIX + "run-loss"
RUN_TIME_LEFT: Final = PREFIX + "run-time-left"
RUN_SUBMITTED: Final = PREFIX + "run-submitted"
"""Unix seconds."""
RUN_UPDATED: Final = PREFIX + "run-updated"
"""Time of the API server in UTC: without a client that follows the run, it becomes old."""

# KubeRay's.
RAY_CLUSTER_LABEL: Final = "ray.io/cluster"
RAY_NODE_TYPE_LABEL: Final = "ray.io/node-type"
RAY_GROUP_LABEL: Final = "ray.io/group"
HEAD_CONTAINER: Final = "ray-head"
WORKER_CONTAINER: Final = "ray-worker"
DASHBOARD_PORT_NAME: Final = "dashboard"
DASHBOARD_PORT: Final = 8265
TOKEN_KEY: Final = "auth_token"

# Kueue's.
QUEUE_LABEL: Final = "kueue.x-k8s.io/queue-name"
QUEUE_PRIORITY_LABEL: Final = "kueue.x-k8s.io/priority-class"
ELASTIC_ANNOTATION: Final = "kueue.x-k8s.io/elastic-job"
ELASTIC_GATE: Final = "kueue.x-k8s.io/elastic-job"
"""Scheduling gate that Kueue's webhook writes into the pod templates of an elastic job."""
MULTIKUEUE: Final = "kueue.x-k8s.io/multikueue"

# Warm workers in pods.
WARM_CODE_DIR: Final = "/opt/llmops"
WARM_DIR: Final = "/var/run/llmops"


def head_service(cluster: str) -> str:
    """Return KubeRay's default name of the head service; prefer status.head.serviceName."""
    return f"{cluster}-head-svc"


def token_secret(cluster: str) -> str:
    """Return the operator's Secret for `authOptions.mode: token` without a secretName."""
    return cluster


def network_policy(cluster: str) -> str:
    return f"{cluster}-pods"


def pod_monitor(cluster: str) -> str:
    return f"{cluster}-metrics"


def dashboard_config_map(cluster: str) -> str:
    return f"{cluster}-dashboard"


def tls_secret(cluster: str) -> str:
    """Return the name of cert-manager's Certificate, and of the Secret that it fills."""
    return f"{cluster}-tls"


def warm_config_map(cluster: str) -> str:
    return f"{cluster}-warm"
