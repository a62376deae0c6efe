"""Which of a template's contexts gets the cluster: the first with room, and why."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from llmops_kernel.clusters.kuberay.capacity import (
    Fit,
    PodSet,
    Verdict,
    free_told,
    namespace_verdict,
    nodes_verdict,
    podsets_of,
    queue_verdict,
    worst,
)
from llmops_kernel.clusters.kuberay.finding import Found, fetched
from llmops_kernel.clusters.kuberay.kube import Kube, KubeError, open_kube
from llmops_kernel.clusters.kuberay.kube_errors import KubeUnreachable
from llmops_kernel.clusters.kuberay.kube_paths import (
    namespace_path,
    nodes_path,
    quotas_path,
    raycluster_path,
)
from llmops_kernel.clusters.kuberay.manifest import render
from llmops_kernel.clusters.kuberay.names import MULTIKUEUE
from llmops_kernel.clusters.kuberay.objects import Obj
from llmops_kernel.clusters.kuberay.places import Place
from llmops_kernel.clusters.kuberay.room import nodes_with_room
from llmops_kernel.clusters.kuberay.world import KUEUE, list_of_group, versions_of
from llmops_kernel.clusters.provider import Progress
from llmops_kernel.config.kuberay import KubeRayTemplate
from llmops_kernel.errors import ClusterStartError, LLMOpsError

TIMEOUT_S: Final = 5.0
"""For all contexts together: one that has not answered by then is passed over."""
_PODS_ON_NODES: Final = "status.phase!=Succeeded,status.phase!=Failed,spec.nodeName!="
_KARPENTER: Final = "/apis/karpenter.sh"
_AUTOSCALER: Final = "/api/v1/namespaces/kube-system/configmaps/cluster-autoscaler-status"
T = TypeVar("T")


@dataclass(frozen=True)
class Sight:
    """What could be seen of a place; None is hidden."""

    nodes: tuple[Obj, ...] | None = None
    node_pods: tuple[Obj, ...] | None = None
    quotas: tuple[Obj, ...] | None = None
    local_queues: tuple[Obj, ...] | None = None
    cluster_queues: tuple[Obj, ...] | None = None
    can_grow: bool | None = None
    """Nodes are added when pods need them."""
    lacks: str = ""
    """What it has not got at all: KubeRay, Kueue, the namespace."""


@dataclass(frozen=True)
class Choice:
    """A place and the sentence that says why it, and why not those before it."""

    place: Place
    why: str


def settled(
    template: KubeRayTemplate, places: Sequence[Place], *, tell: Progress = lambda line: None
) -> Found | Choice:
    """The cluster where it is there already, else the place that gets it.

    Without a choice no room is looked for. Raises what the only place says, and
    ClusterStartError with the reasons of all.
    """
    if len(places) == 1:
        found = fetched(places[0], template.name)
        return found if found is not None else Choice(places[0], "")
    tell(f"Looking for room in {', '.join(map(str, places))}")
    answers = ask_all({place: _asker(place, template) for place in places})
    for place in places:
        answer = answers[place]
        if isinstance(answer, Found):
            return answer
    sights = {p: one for p, one in answers.items() if not isinstance(one, Found)}
    return choice(_verdicts(template, sights), template=template)


def _asker(place: Place, template: KubeRayTemplate) -> Callable[[], Found | Sight]:
    def ask() -> Found | Sight:
        there = fetched(place, template.name)
        if there is not None:
            return there
        return look_at(open_kube(place.context), place.namespace, template)

    return ask


def ask_all(
    asks: Mapping[Place, Callable[[], T]], *, timeout_s: float = TIMEOUT_S
) -> dict[Place, T | LLMOpsError]:
    """Beside each other; whoever is late is told of as unreachable, and left alone."""
    answers: dict[Place, T | LLMOpsError] = {}

    def ask(place: Place, call: Callable[[], T]) -> None:
        try:
            answers[place] = call()
        except LLMOpsError as error:
            answers[place] = error

    deadline_s = time.monotonic() + timeout_s
    # Daemons: a context that does not answer must not hold up the end of the program.
    threads = [threading.Thread(target=ask, args=item, daemon=True) for item in asks.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, deadline_s - time.monotonic()))
    known = dict(answers)
    late = KubeUnreachable(f"no answer within {timeout_s:.0f} s")
    return {place: known.get(place, late) for place in asks}


# What is there


@dataclass
class _Look:
    """Parts of a sight, each of which may be hidden."""

    kube: Kube
    parts: dict[str, Any] = field(default_factory=dict)

    def at(self, part: str, call: Callable[[], Any]) -> bool:
        """False when it is not there at all. Raises what no other part would get past."""
        try:
            self.parts[part] = call()
        except KubeError as error:
            if error.code == 404:
                return False
            if error.code != 403:
                raise
        return True

    def all_of(self, part: str, path: str, *, selector: str = "") -> bool:
        def call() -> tuple[Obj, ...]:
            return tuple(self.kube.list(path, field_selector=selector)[0])

        return self.at(part, call)


def look_at(kube: Kube, namespace: str, template: KubeRayTemplate) -> Sight:
    """Raises KubeError for a place that does not answer or lets nobody in."""
    look = _Look(kube)
    if not look.at("", lambda: kube.get(raycluster_path(namespace), limit=1)):
        return Sight(lacks="KubeRay is not installed")
    if not look.at("", lambda: kube.get(namespace_path(namespace))):
        return Sight(lacks=f"there is no namespace {namespace}")
    look.all_of("quotas", quotas_path(namespace))
    if template.queue and (lacks := _look_at_queues(look, namespace)):
        return Sight(lacks=lacks)
    if template.managed_by != MULTIKUEUE:  # Its pods run in a cluster that Kueue chooses.
        look.all_of("nodes", nodes_path())
        look.all_of("node_pods", "/api/v1/pods", selector=_PODS_ON_NODES)
        look.parts["can_grow"] = _can_grow(kube)
    look.parts.pop("", None)
    return Sight(**look.parts)


def _look_at_queues(look: _Look, namespace: str) -> str:
    if not look.at("kueue", lambda: look.kube.get(KUEUE)):
        return "Kueue is not installed"
    group = look.parts.pop("kueue", {})
    if versions_of(group):
        own = f"namespaces/{namespace}/localqueues"
        look.at("local_queues", lambda: list_of_group(look.kube, group, own))
        look.at("cluster_queues", lambda: list_of_group(look.kube, group, "clusterqueues"))
    return ""


def _can_grow(kube: Kube) -> bool | None:
    """None: it cannot be seen whether there is an autoscaler of nodes."""
    known: bool | None = False
    for path in (_KARPENTER, _AUTOSCALER):
        try:
            kube.get(path)
        except KubeError as error:
            known = known if error.code == 404 else None
        else:
            return True
    return known


# What follows from it


def _verdicts(
    template: KubeRayTemplate, sights: Mapping[Place, Sight | LLMOpsError]
) -> dict[Place, Verdict]:
    found = {}
    for place, sight in sights.items():
        if isinstance(sight, LLMOpsError):
            found[place] = Verdict(Fit.NEVER, f"cannot be asked ({sight.message})")
            continue
        raycluster = render(template, namespace=place.namespace).raycluster
        found[place] = verdict(podsets_of(raycluster), sight, template=template)
    return found


def verdict(podsets: Sequence[PodSet], sight: Sight, *, template: KubeRayTemplate) -> Verdict:
    """Whether the cluster fits there, and what speaks for or against it."""
    if sight.lacks:
        return Verdict(Fit.NEVER, sight.lacks)
    parts = [namespace_verdict(podsets, sight.quotas)]
    if template.queue:
        parts.append(
            queue_verdict(podsets, template.queue, sight.local_queues, sight.cluster_queues)
        )
    if template.managed_by == MULTIKUEUE:
        return worst(parts)
    nodes = None if sight.nodes is None else nodes_with_room(sight.nodes, sight.node_pods)
    parts.append(nodes_verdict(podsets, nodes, can_grow=sight.can_grow))
    found = worst(parts)
    return found if found.fit else Verdict(Fit.NOW, free_told(podsets, nodes))


def choice(verdicts: Mapping[Place, Verdict], *, template: KubeRayTemplate) -> Choice:
    """The first of the best. Raises ClusterStartError when it fits nowhere."""
    best = min((one.fit for one in verdicts.values()), default=Fit.NEVER)
    if best is Fit.NEVER:
        told = "; ".join(f"{place}: {one.why}" for place, one in verdicts.items())
        raise ClusterStartError(
            f"Cluster {template.name!r} fits in none of its contexts: {told}",
            remedy="ask for less in the template, or name other `contexts`",
        )
    order = list(verdicts)
    place = next(one for one in order if verdicts[one].fit is best)
    found = verdicts[place]
    earlier = [f"{one}: {verdicts[one].why}" for one in order[: order.index(place)]]
    passed = f"; not {'; not '.join(earlier)}" if earlier else ""
    return Choice(place, f"{place} {_WORDS[best]}{f' ({found.why})' if found.why else ''}{passed}")


_WORDS: Final = {
    Fit.NOW: "has room",
    Fit.UNKNOWN: "may have room",
    Fit.LATER: "will have room when others leave",
}
