"""Collects what explains why a cluster is not ready, with all requests in parallel."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from llmops_kernel.errors import ClusterError
from llmops_kernel.providers.kuberay.fit.node_fit import Node, nodes_with_free_capacity
from llmops_kernel.providers.kuberay.resource.names import QUEUE_LABEL
from llmops_kernel.providers.kuberay.resource.objects import (
    Obj,
    changed_s,
    created_s,
    dig,
    event_about,
    event_time_s,
    fields,
    labels,
    name_of,
    objects,
    text,
)
from llmops_kernel.providers.protocol import Waiting

if TYPE_CHECKING:
    from llmops_kernel.providers.kuberay.api.client import Kube

TIMEOUT_S = 3.0
"""Timeout for all requests together; what has not arrived by then counts as not looked at."""
_LOG_LINES = 20
_MAX_LOGS = 3
KUEUE = "/apis/kueue.x-k8s.io"


@dataclass(frozen=True)
class ClusterObservation:
    """Objects as the API returns them. None: not looked at, or hidden; then `denied` names them."""

    raycluster: Obj
    now_s: float
    pods: tuple[Obj, ...] = ()
    """Pods of the cluster."""
    events: tuple[Obj, ...] | None = None
    """Events of the RayCluster and of everything that belongs to it."""
    nodes: tuple[Obj, ...] | None = None
    node_pods: tuple[Obj, ...] | None = None
    """Pods of all namespaces that are on a node."""
    namespace: Obj | None = None
    quotas: tuple[Obj, ...] | None = None
    pvcs: tuple[Obj, ...] | None = None
    workloads: tuple[Obj, ...] | None = None
    """Kueue's Workloads in this namespace; empty if Kueue has created none."""
    local_queues: tuple[Obj, ...] | None = None
    cluster_queues: tuple[Obj, ...] | None = None
    kueue: Obj | None = None
    """Kueue's API group; empty if Kueue is not installed."""
    logs: Mapping[str, str] = field(default_factory=dict)
    """Last lines of containers that crashed, by pod."""
    ray_answers: bool | None = None
    """Whether Ray's own API has answered; None if it was not asked."""
    ray_status: Obj | None = None
    """Ray's answer to `/api/cluster_status`."""
    denied: tuple[str, ...] = ()
    """Parts that our rights hide: `nodes`, `events`, ..."""
    silent: tuple[str, ...] = ()
    """Parts that did not answer in time."""

    computed_reasons: dict[str, Waiting | None] = field(
        default_factory=dict, compare=False, repr=False
    )
    """Reasons that were computed for one pod and apply to others too."""

    @property
    def name(self) -> str:
        return name_of(self.raycluster)

    @property
    def age_s(self) -> float | None:
        born_s = created_s(self.raycluster)
        return None if born_s is None else max(0.0, self.now_s - born_s)

    @property
    def unchanged_s(self) -> float | None:
        """Return seconds since it was created or last changed."""
        last_s = changed_s(self.raycluster)
        return None if last_s is None else max(0.0, self.now_s - last_s)

    @property
    def queue(self) -> str:
        return labels(self.raycluster, "metadata", "labels").get(QUEUE_LABEL, "")

    @property
    def is_elsewhere(self) -> bool:
        """Return whether MultiKueue copies it to another cluster, which reports its status back."""
        managed = text(self.raycluster, "spec", "managedBy")
        return bool(managed) and managed != "ray.io/kuberay-operator"

    def own_events(self) -> list[Obj]:
        """Return the events about the RayCluster itself, newest first."""
        return self.events_about(self.raycluster, kind="RayCluster")

    def events_about(self, obj: Obj, *, kind: str) -> list[Obj]:
        """Return the object's events, newest first.

        Events of an object with the same name but another uid are about an earlier object.
        """
        uid = text(obj, "metadata", "uid")
        events = self._events.get((kind, name_of(obj)), [])
        return [e for e in events if not uid or event_about(e).get("uid") in (uid, None, "")]

    @cached_property
    def _events(self) -> dict[tuple[str, str], list[Obj]]:
        by_subject: dict[tuple[str, str], list[Obj]] = {}
        for event in sorted(self.events or (), key=event_time_s, reverse=True):
            subject = event_about(event)
            by_subject.setdefault((text(subject, "kind"), text(subject, "name")), []).append(event)
        return by_subject

    @cached_property
    def nodes_with_capacity(self) -> list[Node] | None:
        """Return the nodes with their free resources; None if they were not seen."""
        return None if self.nodes is None else nodes_with_free_capacity(self.nodes, self.node_pods)


def observe(
    kube: Kube,
    namespace: str,
    name: str,
    *,
    raycluster: Obj | None = None,
    pods: Sequence[Obj] | None = None,
    ray_answers: bool | None = None,
    ray_status: Obj | None = None,
    timeout_s: float = TIMEOUT_S,
) -> ClusterObservation:
    """Collect the observation. What is known already (a watch keeps it) is not requested again.

    Blocks at most `timeout_s`, and raises only what reading the RayCluster itself raises.
    """
    deadline_s = time.monotonic() + timeout_s
    cluster = raycluster or kube.get(f"/apis/ray.io/v1/namespaces/{namespace}/rayclusters/{name}")
    observation = ClusterObservation(
        cluster, kube.clock.now_s(), ray_answers=ray_answers, ray_status=ray_status
    )
    calls = _first_asks(kube, namespace, name, observation, pods)
    if pods is not None:
        # Nodes do not wait for the slowest of the other answers.
        observation = replace(observation, pods=tuple(pods))
        calls |= _pod_asks(kube, namespace, observation.pods)
    observation = _looked_up(observation, calls, deadline_s=deadline_s)
    calls = _queue_asks(kube, namespace, observation) if observation.queue else {}
    if pods is None:
        calls |= _pod_asks(kube, namespace, observation.pods)
    return _looked_up(observation, calls, deadline_s=deadline_s)


Ask = Callable[[], Any]


def _first_asks(
    kube: Kube,
    namespace: str,
    name: str,
    observation: ClusterObservation,
    pods: Sequence[Obj] | None,
) -> dict[str, Ask]:
    core = f"/api/v1/namespaces/{namespace}"

    def listed(path: str, **params: Any) -> Ask:
        return lambda: tuple(kube.list(path, **params)[0])

    calls: dict[str, Ask] = {
        "events": listed(f"{core}/events"),
        "namespace": lambda: kube.get(f"/api/v1/namespaces/{namespace}"),
        "quotas": listed(f"{core}/resourcequotas"),
    }
    if pods is None:
        calls["pods"] = listed(f"{core}/pods", label_selector=f"ray.io/cluster={name}")
    if _claims(observation.raycluster):
        calls["pvcs"] = listed(f"{core}/persistentvolumeclaims")
    if observation.queue:
        calls["kueue"] = lambda: kube.get(KUEUE)
    return calls


def _pod_asks(kube: Kube, namespace: str, pods: Sequence[Obj]) -> dict[str, Ask]:
    """Return the requests that the pods' states make worthwhile."""
    calls = {f"log {name}": _log_ask(kube, namespace, name) for name in _crashed(pods)}
    if any(not text(pod, "spec", "nodeName") for pod in pods):
        calls["nodes"] = lambda: tuple(kube.list("/api/v1/nodes")[0])
        live = "status.phase!=Succeeded,status.phase!=Failed,spec.nodeName!="
        calls["node_pods"] = lambda: tuple(kube.list("/api/v1/pods", field_selector=live)[0])
    elif any(text(pod, "status", "phase") in ("Running", "Unknown") for pod in pods):
        calls["nodes"] = lambda: tuple(kube.list("/api/v1/nodes")[0])
    return calls


def _queue_asks(kube: Kube, namespace: str, observation: ClusterObservation) -> dict[str, Ask]:
    group, scope = observation.kueue or {}, f"namespaces/{namespace}/"
    if not versions_of(group):
        return {}
    return {
        "workloads": lambda: list_of_group(kube, group, f"{scope}workloads"),
        "local_queues": lambda: list_of_group(kube, group, f"{scope}localqueues"),
        "cluster_queues": lambda: list_of_group(kube, group, "clusterqueues"),
    }


def versions_of(group: Obj) -> list[str]:
    """Return the versions of an API group from discovery, the preferred one first."""
    first = text(group, "preferredVersion", "groupVersion")
    served = [text(item, "groupVersion") for item in objects(group, "versions")]
    return [version for version in dict.fromkeys([first, *served]) if version]


def list_of_group(kube: Kube, group: Obj, path: str) -> tuple[Obj, ...]:
    """List a resource in the first version that has it: not every version does.

    Raises KubeError.
    """
    *first, last = versions_of(group)
    for version in first:
        try:
            return tuple(kube.list(f"/apis/{version}/{path}")[0])
        except ClusterError as error:
            if getattr(error, "code", None) != 404:
                raise
    return tuple(kube.list(f"/apis/{last}/{path}")[0])


def _crashed(pods: Iterable[Obj]) -> list[str]:
    """Return the names of pods with a container that failed without a message in its status."""
    names = []
    for pod in pods:
        ended = last_end(pod)
        if ended and not text(ended, "message") and name_of(pod):
            names.append(name_of(pod))
    return names[:_MAX_LOGS]


def last_end(pod: Obj) -> Obj:
    """Return how the pod's first failed container ended, now or before its restart."""
    for status in objects(pod, "status", "containerStatuses"):
        for state in ("state", "lastState"):
            ended = fields(status, state, "terminated")
            if ended and ended.get("exitCode") != 0:
                return ended
    return {}


def _log_ask(kube: Kube, namespace: str, pod: str) -> Ask:
    path = f"/api/v1/namespaces/{namespace}/pods/{pod}/log"
    return lambda: kube.text(path, tailLines=str(_LOG_LINES))


def _claims(raycluster: Obj) -> bool:
    """Return whether any pod of the cluster mounts a PersistentVolumeClaim."""
    spec = fields(raycluster, "spec")
    groups = [fields(spec, "headGroupSpec"), *objects(spec, "workerGroupSpecs")]
    volumes = (v for group in groups for v in objects(group, "template", "spec", "volumes"))
    return any(dig(volume, "persistentVolumeClaim") is not None for volume in volumes)


def _looked_up(
    observation: ClusterObservation, calls: Mapping[str, Ask], *, deadline_s: float
) -> ClusterObservation:
    if not calls:
        return observation
    answers = _parallel(calls, deadline_s=deadline_s)
    values: dict[str, Any] = {}
    denied, silent = list(observation.denied), list(observation.silent)
    logs = dict(observation.logs)
    for part, answer in answers.items():
        code = getattr(answer, "code", None)
        if part.startswith("log "):
            if isinstance(answer, str):
                logs[part.removeprefix("log ")] = answer
            elif code == 403 and "pod logs" not in denied:
                denied.append("pod logs")
        elif not isinstance(answer, Exception):
            values[part] = answer
        elif code == 404 and part == "kueue":
            values["kueue"] = {}
        elif code == 403:
            denied.append(_WORDS.get(part, part))
        elif code != 404:
            silent.append(_WORDS.get(part, part))
    late = [part for part in calls if part not in answers and not part.startswith("log ")]
    silent += [_WORDS.get(part, part) for part in late]
    outcome: dict[str, Any] = {"denied": tuple(denied), "silent": tuple(silent), "logs": logs}
    return replace(observation, **values, **outcome)


def _parallel(calls: Mapping[str, Ask], *, deadline_s: float) -> dict[str, Any]:
    """Return the answers, or the error of each request that failed.

    A late request is left out and its thread left alone.
    """
    answers: dict[str, Any] = {}

    def ask(part: str, call: Ask) -> None:
        try:
            answers[part] = call()
        except ClusterError as error:
            answers[part] = error

    # Daemon threads: an API server that does not answer must not delay the exit of the program.
    threads = [
        threading.Thread(target=ask, args=item, name=f"llmops-look-{item[0]}", daemon=True)
        for item in calls.items()
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, deadline_s - time.monotonic()))
    return dict(answers)


_WORDS = {
    "node_pods": "pods of other namespaces",
    "pvcs": "persistentvolumeclaims",
    "quotas": "resourcequotas",
    "local_queues": "localqueues",
    "cluster_queues": "clusterqueues",
    "namespace": "the namespace",
}


def newest(events: Iterable[Obj], *reasons: str) -> Obj | None:
    """Return the first event with one of those reasons: the newest, if they are sorted that way."""
    return next((event for event in events if text(event, "reason") in reasons), None)
