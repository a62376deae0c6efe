"""Builds ClusterInfo for a RayCluster: from the operator, from Ray, and why it waits."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from llmops_kernel.config.models.section import MetricsPages
from llmops_kernel.providers.dashboard import Usage
from llmops_kernel.providers.kuberay.api import rights
from llmops_kernel.providers.kuberay.api.cache import Obj, pods_of
from llmops_kernel.providers.kuberay.api.client import KubeError
from llmops_kernel.providers.kuberay.api.paths import with_scope
from llmops_kernel.providers.kuberay.api.refreshing_cache import RefreshingCache
from llmops_kernel.providers.kuberay.resource import names, status
from llmops_kernel.providers.kuberay.resource.objects import one_line
from llmops_kernel.providers.kuberay.resource.output_storage import (
    head_environment,
    output_storage_of,
)
from llmops_kernel.providers.kuberay.resource.status import (
    Phase,
    most_resources,
    total_expected_pods,
)
from llmops_kernel.providers.kuberay.state.discovery import LocatedCluster
from llmops_kernel.providers.kuberay.state.idle_policy import guard_times
from llmops_kernel.providers.kuberay.state.ray_probe import RayAnswer, ask_ray, is_known
from llmops_kernel.providers.protocol import (
    UNASKED,
    ClusterAction,
    ClusterInfo,
    ClusterState,
    Waiting,
)

PROVIDER: Final = "kuberay"
_GET_S: Final = 0.9
"""Timeout for questions about a cluster that were never asked before: a kernel must not hang."""
_GET_TRIPS: Final = 30
"""Round trips added to it: a new route needs about 15 of them, with handshakes and Ray's report."""
_FIRST_S: Final = 0.9
_TRIPS: Final = 15
"""Round trips to a far API server that the reasons of a wait may take."""
_reasons: RefreshingCache[tuple[Waiting, ...]] = RefreshingCache(
    refresh_after_s=2.0, patience_s=_FIRST_S, stale_s=15.0
)
_PODS_S: Final = 2.0
_SHOWN: Final = 100
_WHY: Final = 1000
"""Characters of annotations, which anybody may have written, that are shown."""
_NEXT_S: Final = 0.05
"""Wait for the reasons of the next phase of a cluster that was explained before."""
_MAX_EXPLAINED: Final = 10_000
_explained: set[tuple[int, str]] = set()
_ASKED_AT_ONCE: Final = 8
"""Number of clusters of a long list that one look asks about; the next look asks about others."""
_LIST_S: Final = 0.8
_LONG_LIST_S: Final = 0.25
_QUIET_S: Final = 3.0
"""A watch that breaks and recovers sooner is not reported."""
_NOT_NOW: Final[Mapping[ClusterAction, Mapping[ClusterState, str]]] = {
    ClusterAction.SUSPEND: {
        ClusterState.STOPPED: "It is already stopped",
        ClusterState.STOPPING: "It is being stopped",
    },
    ClusterAction.RESUME: {
        ClusterState.READY: "It is running",
        ClusterState.STARTING: "It is starting",
    },
    ClusterAction.SCALE: {
        ClusterState.STOPPING: "It is being stopped",
        ClusterState.STOPPED: "It is stopped: resume it first",
    },
}


def latest_s(located: LocatedCluster) -> float:
    """Return until when a command waits for what was never asked before (monotonic)."""
    return time.monotonic() + _GET_S + _GET_TRIPS * located.kube.round_trip.seconds


def info_of(
    located: LocatedCluster,
    *,
    until_s: float | None = None,
    in_list: bool = False,
    asks: bool = True,
) -> ClusterInfo:
    """Return the info at once, or within a second if something was never asked before.

    Without `asks` it contains only what the watch knows.
    """
    raycluster = located.raycluster
    phase = status.phase_of(raycluster)
    answer = ask_ray(located, until_s=until_s) if phase.has_ray and asks else None
    phase = _with_ray(phase, answer, is_away=located.error is not None, in_list=in_list)
    reasons: tuple[Waiting, ...] = ()
    if asks:
        reasons = _with_denial(located, phase, answer, until_s=until_s, in_list=in_list)
    phase = _with_slice(phase, answer, reasons)
    ready, workers_wanted = status.workers_ready(raycluster), total_expected_pods(raycluster)
    message, remedy = _words(located, phase, reasons)
    is_incomplete = asks and ready != workers_wanted and phase.state is not ClusterState.STOPPED
    pods = _known_pods(located, in_list=in_list) if is_incomplete else None
    usage = answer.usage if answer and answer.lives else None
    return ClusterInfo(
        name=located.name,
        provider=PROVIDER,
        state=phase.state,
        head_runs=phase.head_runs,
        message=message,
        remedy=remedy,
        dashboard_url=answer.url if answer else None,
        created_s=status.created_s(raycluster),
        actions=actions_of(located, phase.state, until_s=until_s),
        workers_ready=ready,
        workers_wanted=workers_wanted,
        groups=status.group_infos(raycluster, pods),
        waiting=(*reasons, *usage.waiting) if usage else reasons,
        **_definition(located),
        **_guard_times(located, usage),
        **usage.figures() if usage else {},
    )


def _known_pods(located: LocatedCluster, *, in_list: bool) -> list[Obj] | None:
    """Return the pods; in a list only if the watch has them, since the first look takes time."""
    return pods_of_cluster(located, patience_s=0.0 if in_list else _NEXT_S)


def _definition(located: LocatedCluster) -> dict[str, Any]:
    """Return what its RayCluster says, whatever its state is."""
    raycluster = located.raycluster
    return {
        "most_resources": most_resources(raycluster),
        "context": located.scope.context,
        "namespace": located.scope.namespace,
        "ray_version": status.ray_version(raycluster),
        "queue": status.queue_of(raycluster),
        "image": status.image_of(raycluster),
        "run_storage": output_storage_of(raycluster).runs,
        "runs_url": MetricsPages.runs_url(head_environment(raycluster), located.name),
        "is_adopted": not status.is_ours(raycluster),
        "created_by": one_line(status.annotation(raycluster, names.CREATED_BY), limit=_SHOWN),
        "chosen": one_line(status.annotation(raycluster, names.CHOSEN), limit=_WHY),
    }


def infos_of(located: Sequence[LocatedCluster]) -> list[ClusterInfo]:
    """Return the info of many clusters, asked in parallel; of a long list a few at a time."""
    is_long = len(located) > _ASKED_AT_ONCE
    until_s = time.monotonic() + (_LONG_LIST_S if is_long else _LIST_S)
    unknown = [cluster for cluster in located if _is_unknown(cluster)]
    later = {cluster.uid for cluster in unknown[_ASKED_AT_ONCE:]}
    for cluster in located:
        if cluster.uid not in later and status.phase_of(cluster.raycluster).has_ray:
            ask_ray(cluster, until_s=0.0)
    return [
        info_of(cluster, until_s=until_s, in_list=True, asks=cluster.uid not in later)
        for cluster in located
    ]


def _is_unknown(located: LocatedCluster) -> bool:
    """Return whether there is something to ask about it that was never asked."""
    phase = status.phase_of(located.raycluster)
    if phase.has_ray:
        return not is_known(located)
    return phase.state is ClusterState.STARTING and _seen_by(located) not in _explained


def actions_of(
    located: LocatedCluster, state: ClusterState, *, until_s: float | None = None
) -> dict[ClusterAction, str]:
    """Return each action with the reason why it is not possible now, or an empty text."""
    missing_rights = rights.missing(located.kube, located.scope.namespace, until_s=until_s)
    denied = rights.refusals(missing_rights, located.scope.namespace)
    is_leaving = bool(located.raycluster["metadata"].get("deletionTimestamp"))
    reason = "It is being deleted" if is_leaving else ""
    return {
        action: denied.get(action) or reason or _NOT_NOW.get(action, {}).get(state, "")
        for action in ClusterAction
    }


def pods_of_cluster(located: LocatedCluster, *, patience_s: float = _PODS_S) -> list[Obj] | None:
    """Return its pods from the namespace's one watch of pods; None if they may not be seen."""
    try:
        snapshot = pods_of(located.kube, located.scope.namespace).snapshot(patience_s=patience_s)
    except KubeError:
        return None
    cluster_name, label = located.own_name, names.RAY_CLUSTER_LABEL
    pods = snapshot.items.values()
    return [pod for pod in pods if (pod["metadata"].get("labels") or {}).get(label) == cluster_name]


def _with_ray(phase: Phase, answer: RayAnswer | None, *, is_away: bool, in_list: bool) -> Phase:
    """Combine it with Ray's answer: if the operator is satisfied, only Ray makes it ready."""
    if not phase.asks_ray:
        return phase
    # Ray is reached through the same API server: if that is silent, it says nothing about Ray.
    if is_away or (answer is not None and answer.lives):
        return Phase(ClusterState.READY)
    if answer is not None and answer.denied is not None:
        reason = "Ray's API may not be asked" if in_list else answer.reason
        return Phase(ClusterState.READY, reason, asks_ray=True)
    if answer is not None:
        return Phase(ClusterState.STARTING, answer.reason, asks_ray=True)
    if in_list:
        return Phase(ClusterState.READY, "Ray's API was not checked in time")
    return Phase(ClusterState.STARTING, "Ray's API has not answered yet")


def _with_slice(phase: Phase, answer: RayAnswer | None, reasons: tuple[Waiting, ...]) -> Phase:
    """Return READY for an elastic cluster whose further workers wait in Kueue's queue.

    That may take days, and meanwhile the workers that it has take runs.
    """
    lives = answer is not None and answer.lives
    if phase.serves and lives and reasons and reasons[0].kind in ("queue", "quota"):
        return Phase(ClusterState.READY, phase.message)
    return phase


def _with_denial(
    located: LocatedCluster,
    phase: Phase,
    answer: RayAnswer | None,
    *,
    until_s: float | None,
    in_list: bool,
) -> tuple[Waiting, ...]:
    """Return the reasons; a missing right to ask Ray comes first, and says nothing about Ray."""
    reasons = _reasons_for(located, phase, answer, until_s=until_s)
    if reasons is None:
        # A list asks about more clusters at each look; whoever asks about one gets an answer.
        reasons = () if in_list else (_unasked(located),)
    if phase.asks_ray and answer is not None and answer.denied is not None:
        return (answer.denied, *(denial for denial in reasons if denial.kind != "ray"))
    if phase.asks_ray and answer is None and not reasons and not in_list and _waits(phase):
        return (_unasked(located, message=phase.message),)
    if reasons and reasons[0].kind == UNASKED and phase.message:
        first, *rest = reasons
        message = f"{phase.message}; {first.message[:1].lower()}{first.message[1:]}"
        return (first.model_copy(update={"message": message}), *rest)
    return reasons


def _unasked(
    located: LocatedCluster, *, message: str = "what it waits for was not answered in time"
) -> Waiting:
    return Waiting(
        message=message, remedy=f"ask again: `llmops status {located.name}`", kind=UNASKED
    )


def _waits(phase: Phase) -> bool:
    return phase.state in (ClusterState.STARTING, ClusterState.STOPPING)


def _reasons_for(
    located: LocatedCluster, phase: Phase, answer: RayAnswer | None, *, until_s: float | None
) -> tuple[Waiting, ...] | None:
    """Return the reasons; None if they were not answered in time."""
    raycluster = located.raycluster
    short = status.workers_ready(raycluster) < total_expected_pods(raycluster)
    # A change that breaks the operator's own rules shows up only in an event.
    short = short or status.generation_behind(raycluster)
    is_short = short and phase.state is ClusterState.READY
    if located.error is not None or not (_waits(phase) or is_short):
        return ()
    lives = None if answer is None or answer.denied else answer.lives
    # Another phase has other reasons; another count of the same reasons may wait a moment.
    step = "".join(char for char in phase.message if not char.isdigit())
    generation = raycluster["metadata"].get("generation")
    key = (located.kube.key, located.uid, generation, step)
    far_s = _FIRST_S + _TRIPS * located.kube.round_trip.seconds
    patience_s = _NEXT_S if _seen_by(located) in _explained else far_s
    reasons = _reasons.get(
        key, lambda: _find_reasons(located, lives), until_s=until_s, patience_s=patience_s
    )
    if reasons is None:
        return None if _waits(phase) else ()
    if len(_explained) > _MAX_EXPLAINED:
        _explained.clear()
    _explained.add(_seen_by(located))
    return reasons


def _seen_by(located: LocatedCluster) -> tuple[int, str]:
    """Return the cluster as one client sees it: after a new sign-in nothing is known yet."""
    return located.kube.key, located.uid


def _find_reasons(located: LocatedCluster, ray_answers: bool | None) -> tuple[Waiting, ...]:
    from llmops_kernel.providers.kuberay.fit.observation import TIMEOUT_S, observe
    from llmops_kernel.providers.kuberay.waiting.reasons import waiting

    try:
        observation = observe(
            located.kube,
            located.scope.namespace,
            located.own_name,
            raycluster=located.raycluster,
            pods=pods_of_cluster(located),
            ray_answers=ray_answers,
            timeout_s=TIMEOUT_S + _TRIPS * located.kube.round_trip.seconds,
        )
    except KubeError as error:
        return (Waiting(message=error.message, remedy=error.remedy, kind="permission"),)
    context, namespace = located.scope.context, located.scope.namespace
    return tuple(
        reason.model_copy(
            update={"remedy": with_scope(reason.remedy, context=context, namespace=namespace)}
        )
        for reason in waiting(observation)
    )


def _words(located: LocatedCluster, phase: Phase, reasons: tuple[Waiting, ...]) -> tuple[str, str]:
    if located.error is not None and located.old_s > _QUIET_S:
        message = f"Last known state, {located.old_s:.0f} s old: {located.error.message}"
        return message, located.error.remedy
    if reasons and phase.state is not ClusterState.STOPPING:
        is_more = phase.asks_ray and phase.message != reasons[0].message
        also = f" ({phase.message})" if is_more else ""
        return f"{reasons[0].message}{also}", reasons[0].remedy
    if phase.state is ClusterState.STOPPED:
        return phase.message, f"llmops resume {located.name}"
    return phase.message, ""


def _guard_times(located: LocatedCluster, usage: Usage | None) -> dict[str, float | None]:
    """Return when guards act, by the clock on which those of all users agree."""
    now_s = located.kube.clock.now_s()
    kept_s = status.seconds_of(located.raycluster, names.KEPT_UNTIL)
    is_kept = kept_s is not None and kept_s > now_s
    times = guard_times(located.raycluster, usage, now_s=now_s)
    return {"kept_until_s": kept_s if is_kept else None, **times}
