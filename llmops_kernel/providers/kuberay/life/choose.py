"""Chooses the context of a template that gets the cluster: the first that fits it, and why."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

from llmops_kernel.config.models.kuberay import KubeRayTemplate
from llmops_kernel.errors import ClusterStartError, LLMOpsError
from llmops_kernel.providers.kuberay.api.client import Kube, KubeError, open_kube
from llmops_kernel.providers.kuberay.api.errors import KubeUnreachable
from llmops_kernel.providers.kuberay.api.paths import (
    namespace_path,
    nodes_path,
    quotas_path,
    raycluster_path,
)
from llmops_kernel.providers.kuberay.fit.capacity import (
    Fit,
    PodSet,
    Verdict,
    free_text,
    namespace_verdict,
    nodes_verdict,
    podsets_of,
    queue_verdict,
    worst,
)
from llmops_kernel.providers.kuberay.fit.node_fit import nodes_with_free_capacity
from llmops_kernel.providers.kuberay.fit.observation import KUEUE, list_of_group, versions_of
from llmops_kernel.providers.kuberay.render.manifest import render
from llmops_kernel.providers.kuberay.resource.names import MULTIKUEUE
from llmops_kernel.providers.kuberay.resource.objects import Obj
from llmops_kernel.providers.kuberay.state.discovery import (
    KubeScope,
    LocatedCluster,
    fetched,
    may_be_at,
)
from llmops_kernel.providers.protocol import Progress

TIMEOUT_S: Final = 5.0
"""Timeout for all contexts together: one that has not answered by then is skipped."""
_PODS_ON_NODES: Final = "status.phase!=Succeeded,status.phase!=Failed,spec.nodeName!="
_KARPENTER: Final = "/apis/karpenter.sh"
_AUTOSCALER: Final = "/api/v1/namespaces/kube-system/configmaps/cluster-autoscaler-status"
T = TypeVar("T")


@dataclass(frozen=True)
class ContextSnapshot:
    """What could be seen of a context and namespace; None for what is hidden."""

    nodes: tuple[Obj, ...] | None = None
    node_pods: tuple[Obj, ...] | None = None
    quotas: tuple[Obj, ...] | None = None
    local_queues: tuple[Obj, ...] | None = None
    cluster_queues: tuple[Obj, ...] | None = None
    can_grow: bool | None = None
    """Whether nodes are added when pods need them."""
    lacks: str = ""
    """What is missing altogether: KubeRay, Kueue, the namespace."""


@dataclass(frozen=True)
class Choice:
    """A context and namespace, and a sentence why it was chosen and the ones before it were not."""

    scope: KubeScope
    why: str


def find_or_choose(
    template: KubeRayTemplate,
    scopes: Sequence[KubeScope],
    *,
    home: Path,
    report: Progress = lambda line: None,
) -> LocatedCluster | Choice:
    """Return the cluster if it exists already, else the context and namespace that gets it.

    With a single candidate, free capacity is not checked. Raises the error of a single candidate,
    and ClusterStartError with the reasons of all if none fits.
    """
    if len(scopes) == 1:
        found = fetched(scopes[0], template.name, home=home)
        return found if found is not None else Choice(scopes[0], "")
    report(f"Looking for free capacity in {', '.join(map(str, scopes))}")
    answers = ask_all({scope: _asker(scope, template, home) for scope in scopes})
    for scope in scopes:
        answer = answers[scope]
        if isinstance(answer, LocatedCluster):
            return answer
    snapshots = {p: one for p, one in answers.items() if not isinstance(one, LocatedCluster)}
    for scope, answer in snapshots.items():
        if isinstance(answer, LLMOpsError) and may_be_at(home, scope, template.name):
            raise _perhaps_there(template.name, scope, answer)
    return choice(_verdicts(template, snapshots), template=template)


def _perhaps_there(name: str, scope: KubeScope, error: LLMOpsError) -> ClusterStartError:
    """Return the error that keeps `up` from creating a second cluster of that name elsewhere."""
    return ClusterStartError(
        f"Cluster {name!r} was used in {scope}, and whether it still exists is unknown:"
        f" {error.message}. No other one was created",
        remedy="run it again when that context answers; for a second cluster in another context,"
        " leave this one out of `contexts` in the template",
    )


def _asker(
    scope: KubeScope, template: KubeRayTemplate, home: Path
) -> Callable[[], LocatedCluster | ContextSnapshot]:
    def ask() -> LocatedCluster | ContextSnapshot:
        there = fetched(scope, template.name, home=home)
        if there is not None:
            return there
        return look_at(open_kube(scope.context), scope.namespace, template)

    return ask


def ask_all(
    asks: Mapping[KubeScope, Callable[[], T]], *, timeout_s: float = TIMEOUT_S
) -> dict[KubeScope, T | LLMOpsError]:
    """Ask all in parallel. One that is late counts as unreachable, and its thread is left alone."""
    answers: dict[KubeScope, T | LLMOpsError] = {}

    def ask(scope: KubeScope, call: Callable[[], T]) -> None:
        try:
            answers[scope] = call()
        except LLMOpsError as error:
            answers[scope] = error

    deadline_s = time.monotonic() + timeout_s
    # Daemon threads: a context that does not answer must not delay the exit of the program.
    threads = [threading.Thread(target=ask, args=item, daemon=True) for item in asks.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, deadline_s - time.monotonic()))
    known = dict(answers)
    late = KubeUnreachable(f"no answer within {timeout_s:.0f} s")
    return {scope: known.get(scope, late) for scope in asks}


# What is there


@dataclass
class _ContextLook:
    """Parts of a snapshot, each of which may be hidden."""

    kube: Kube
    parts: dict[str, Any] = field(default_factory=dict)

    def at(self, part: str, call: Callable[[], Any]) -> bool:
        """Return False if the part does not exist.

        Raises errors that every other part would hit too.
        """
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


def look_at(kube: Kube, namespace: str, template: KubeRayTemplate) -> ContextSnapshot:
    """Return what is seen of a namespace. Raises KubeError if it cannot be reached or accessed."""
    look = _ContextLook(kube)
    if not look.at("", lambda: kube.get(raycluster_path(namespace), limit=1)):
        return ContextSnapshot(lacks="KubeRay is not installed")
    if not look.at("", lambda: kube.get(namespace_path(namespace))):
        return ContextSnapshot(lacks=f"there is no namespace {namespace}")
    look.all_of("quotas", quotas_path(namespace))
    if template.queue and (lacks := _look_at_queues(look, namespace)):
        return ContextSnapshot(lacks=lacks)
    if template.managed_by != MULTIKUEUE:  # Else Kueue chooses its pods' cluster.
        look.all_of("nodes", nodes_path())
        look.all_of("node_pods", "/api/v1/pods", selector=_PODS_ON_NODES)
        look.parts["can_grow"] = _can_grow(kube)
    look.parts.pop("", None)
    return ContextSnapshot(**look.parts)


def _look_at_queues(look: _ContextLook, namespace: str) -> str:
    if not look.at("kueue", lambda: look.kube.get(KUEUE)):
        return "Kueue is not installed"
    group = look.parts.pop("kueue", {})
    if versions_of(group):
        own = f"namespaces/{namespace}/localqueues"
        look.at("local_queues", lambda: list_of_group(look.kube, group, own))
        look.at("cluster_queues", lambda: list_of_group(look.kube, group, "clusterqueues"))
    return ""


def _can_grow(kube: Kube) -> bool | None:
    """Return whether nodes are autoscaled; None if that cannot be seen."""
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
    template: KubeRayTemplate, snapshots: Mapping[KubeScope, ContextSnapshot | LLMOpsError]
) -> dict[KubeScope, Verdict]:
    found = {}
    for scope, snapshot in snapshots.items():
        if isinstance(snapshot, LLMOpsError):
            found[scope] = Verdict(Fit.NEVER, f"cannot be checked ({snapshot.message})")
            continue
        raycluster = render(template, namespace=scope.namespace).raycluster
        found[scope] = verdict(podsets_of(raycluster), snapshot, template=template)
    return found


def verdict(
    podsets: Sequence[PodSet], snapshot: ContextSnapshot, *, template: KubeRayTemplate
) -> Verdict:
    """Return whether the cluster fits there, and what limits it or is free."""
    if snapshot.lacks:
        return Verdict(Fit.NEVER, snapshot.lacks)
    parts = [namespace_verdict(podsets, snapshot.quotas)]
    if template.queue:
        parts.append(
            queue_verdict(podsets, template.queue, snapshot.local_queues, snapshot.cluster_queues)
        )
    if template.managed_by == MULTIKUEUE:
        return worst(parts)
    nodes = (
        None
        if snapshot.nodes is None
        else nodes_with_free_capacity(snapshot.nodes, snapshot.node_pods)
    )
    parts.append(nodes_verdict(podsets, nodes, can_grow=snapshot.can_grow))
    found = worst(parts)
    return found if found.fit else Verdict(Fit.NOW, free_text(podsets, nodes))


def choice(verdicts: Mapping[KubeScope, Verdict], *, template: KubeRayTemplate) -> Choice:
    """Return the first of the best fits. Raises ClusterStartError when the cluster fits nowhere."""
    best = min((one.fit for one in verdicts.values()), default=Fit.NEVER)
    if best is Fit.NEVER:
        reported = "; ".join(f"{scope}: {one.why}" for scope, one in verdicts.items())
        raise ClusterStartError(
            f"Cluster {template.name!r} fits in none of its contexts: {reported}",
            remedy="request less in the template, or list other `contexts`",
        )
    order = list(verdicts)
    scope = next(one for one in order if verdicts[one].fit is best)
    found = verdicts[scope]
    earlier = [f"{one}: {verdicts[one].why}" for one in order[: order.index(scope)]]
    passed = f"; skipped {'; skipped '.join(earlier)}" if earlier else ""
    return Choice(scope, f"{scope} {_WORDS[best]}{f' ({found.why})' if found.why else ''}{passed}")


_WORDS: Final = {
    Fit.NOW: "has free capacity",
    Fit.UNKNOWN: "may have free capacity",
    Fit.LATER: "will have free capacity when other workloads end",
}
