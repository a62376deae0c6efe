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
    """Visible state of a context and namespace; None for what is hidden."""

    nodes: tuple[Obj, ...] | None = None
    node_pods: tuple[Obj, ...] | None = None
    quotas: tuple[Obj, ...] | None = None
    local_queues: tuple[Obj, ...] | None = None
    cluster_queues: tuple[Obj, ...] | None = None
    can_grow: bool | None = None
    """Whether nodes are added when pods need them."""
    missing: str = ""
    """Missing prerequisite: KubeRay, Kueue, the namespace."""


@dataclass(frozen=True)
class Choice:
    """A context and namespace, and a sentence why it was chosen and the ones before it were not."""

    scope: KubeScope
    reason: str


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
        located = fetched(scopes[0], template.name, home=home)
        return located if located is not None else Choice(scopes[0], "")
    report(f"Looking for free capacity in {', '.join(map(str, scopes))}")
    answers = ask_all({scope: _asker(scope, template, home) for scope in scopes})
    for scope in scopes:
        answer = answers[scope]
        if isinstance(answer, LocatedCluster):
            return answer
    snapshots = {p: each for p, each in answers.items() if not isinstance(each, LocatedCluster)}
    for scope, answer in snapshots.items():
        if isinstance(answer, LLMOpsError) and may_be_at(home, scope, template.name):
            raise _possible_duplicate(template.name, scope, answer)
    return choice(_verdicts(template, snapshots), template=template)


def _possible_duplicate(name: str, scope: KubeScope, error: LLMOpsError) -> ClusterStartError:
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
        located = fetched(scope, template.name, home=home)
        if located is not None:
            return located
        return snapshot_of(open_kube(scope.context), scope.namespace, template)

    return ask


def ask_all(
    calls: Mapping[KubeScope, Callable[[], T]], *, timeout_s: float = TIMEOUT_S
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
    threads = [threading.Thread(target=ask, args=item, daemon=True) for item in calls.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, deadline_s - time.monotonic()))
    results = dict(answers)
    late = KubeUnreachable(f"no answer within {timeout_s:.0f} s")
    return {scope: results.get(scope, late) for scope in calls}


# --- Snapshots of contexts ---


@dataclass
class _ContextReader:
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


def snapshot_of(kube: Kube, namespace: str, template: KubeRayTemplate) -> ContextSnapshot:
    """Return what is seen of a namespace. Raises KubeError if it cannot be reached or accessed."""
    reader = _ContextReader(kube)
    if not reader.at("", lambda: kube.get(raycluster_path(namespace), limit=1)):
        return ContextSnapshot(missing="KubeRay is not installed")
    if not reader.at("", lambda: kube.get(namespace_path(namespace))):
        return ContextSnapshot(missing=f"there is no namespace {namespace}")
    reader.all_of("quotas", quotas_path(namespace))
    if template.queue and (missing := _read_queues(reader, namespace)):
        return ContextSnapshot(missing=missing)
    if template.managed_by != MULTIKUEUE:  # Else Kueue chooses its pods' cluster.
        reader.all_of("nodes", nodes_path())
        reader.all_of("node_pods", "/api/v1/pods", selector=_PODS_ON_NODES)
        reader.parts["can_grow"] = _can_grow(kube)
    reader.parts.pop("", None)
    return ContextSnapshot(**reader.parts)


def _read_queues(reader: _ContextReader, namespace: str) -> str:
    if not reader.at("kueue", lambda: reader.kube.get(KUEUE)):
        return "Kueue is not installed"
    group = reader.parts.pop("kueue", {})
    if versions_of(group):
        path = f"namespaces/{namespace}/localqueues"
        reader.at("local_queues", lambda: list_of_group(reader.kube, group, path))
        reader.at("cluster_queues", lambda: list_of_group(reader.kube, group, "clusterqueues"))
    return ""


def _can_grow(kube: Kube) -> bool | None:
    """Return whether nodes are autoscaled; None if that cannot be seen."""
    result: bool | None = False
    for path in (_KARPENTER, _AUTOSCALER):
        try:
            kube.get(path)
        except KubeError as error:
            result = result if error.code == 404 else None
        else:
            return True
    return result


# --- Verdicts and choice ---


def _verdicts(
    template: KubeRayTemplate, snapshots: Mapping[KubeScope, ContextSnapshot | LLMOpsError]
) -> dict[KubeScope, Verdict]:
    verdicts = {}
    for scope, snapshot in snapshots.items():
        if isinstance(snapshot, LLMOpsError):
            verdicts[scope] = Verdict(Fit.NEVER, f"cannot be checked ({snapshot.message})")
            continue
        raycluster = render(template, namespace=scope.namespace).raycluster
        verdicts[scope] = verdict(podsets_of(raycluster), snapshot, template=template)
    return verdicts


def verdict(
    podsets: Sequence[PodSet], snapshot: ContextSnapshot, *, template: KubeRayTemplate
) -> Verdict:
    """Return whether the cluster fits there, and what limits it or is free."""
    if snapshot.missing:
        return Verdict(Fit.NEVER, snapshot.missing)
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
    result = worst(parts)
    return result if result.fit else Verdict(Fit.NOW, free_text(podsets, nodes))


def choice(verdicts: Mapping[KubeScope, Verdict], *, template: KubeRayTemplate) -> Choice:
    """Return the first of the best fits. Raises ClusterStartError when the cluster fits nowhere."""
    best = min((candidate.fit for candidate in verdicts.values()), default=Fit.NEVER)
    if best is Fit.NEVER:
        reported = "; ".join(
            f"{scope}: {candidate.reason}" for scope, candidate in verdicts.items()
        )
        raise ClusterStartError(
            f"Cluster {template.name!r} fits in none of its contexts: {reported}",
            remedy="request less in the template, or list other `contexts`",
        )
    order = list(verdicts)
    scope = next(candidate for candidate in order if verdicts[candidate].fit is best)
    chosen = verdicts[scope]
    earlier = [
        f"{candidate}: {verdicts[candidate].reason}" for candidate in order[: order.index(scope)]
    ]
    skipped = f"; skipped {'; skipped '.join(earlier)}" if earlier else ""
    return Choice(
        scope, f"{scope} {_WORDS[best]}{f' ({chosen.reason})' if chosen.reason else ''}{skipped}"
    )


_WORDS: Final = {
    Fit.NOW: "has free capacity",
    Fit.UNKNOWN: "may have free capacity",
    Fit.LATER: "will have free capacity when other workloads end",
}
