"""A RayCluster as ClusterInfo: the operator's word, Ray's own, and why it waits."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from llmops_kernel.clusters.kuberay import names, rights, status
from llmops_kernel.clusters.kuberay.cache import Obj, pods_of
from llmops_kernel.clusters.kuberay.finding import Found
from llmops_kernel.clusters.kuberay.fresh import Fresh
from llmops_kernel.clusters.kuberay.guard import times_of
from llmops_kernel.clusters.kuberay.kube import KubeError
from llmops_kernel.clusters.kuberay.ray_probe import RayAnswer, ask_ray, is_known
from llmops_kernel.clusters.kuberay.status import Phase
from llmops_kernel.clusters.provider import ClusterAction, ClusterInfo, ClusterState, Waiting

PROVIDER: Final = "kuberay"
_reasons: Fresh[tuple[Waiting, ...]] = Fresh(fresh_s=2.0, patience_s=0.9, stale_s=15.0)
_PODS_S: Final = 2.0
_NEXT_S: Final = 0.05
"""For the reasons of another phase of a cluster that was explained before."""
_MAX_EXPLAINED: Final = 10_000
_explained: set[str] = set()
_ASKED_AT_ONCE: Final = 8
"""Clusters of a long list about which one look asks; the next look asks about the next."""
_LIST_S: Final = 0.8
_LONG_LIST_S: Final = 0.25
_QUIET_S: Final = 3.0
"""A watch that breaks off and comes back sooner is not worth a word."""
_NOT_NOW: Final[Mapping[ClusterAction, Mapping[ClusterState, str]]] = {
    ClusterAction.SUSPEND: {
        ClusterState.STOPPED: "It is suspended already",
        ClusterState.STOPPING: "It is being stopped",
    },
    ClusterAction.RESUME: {
        ClusterState.READY: "It is running",
        ClusterState.STARTING: "It is starting",
    },
    ClusterAction.SCALE: {
        ClusterState.STOPPING: "It is being stopped",
        ClusterState.STOPPED: "It is suspended: resume it first",
    },
}


def info_of(
    found: Found, *, until_s: float | None = None, in_list: bool = False, asks: bool = True
) -> ClusterInfo:
    """Answers at once, or within a second when something about it has never been asked.

    Without `asks` it tells only what the watch knows.
    """
    raycluster = found.raycluster
    phase = status.phase_of(raycluster)
    answer = ask_ray(found, until_s=until_s) if phase.asks_ray and asks else None
    phase = _with_ray(phase, answer, is_away=found.error is not None, in_list=in_list)
    reasons = _why(found, phase, answer, until_s=until_s) if asks else ()
    ready, wanted = status.workers_ready(raycluster), status.workers_wanted(raycluster)
    message, remedy = _words(found, phase, reasons)
    waits = asks and ready != wanted and phase.state is not ClusterState.STOPPED
    # In a list only if they are known already: the first look at them takes a moment.
    pods = pods_of_cluster(found, patience_s=0.0 if in_list else _NEXT_S) if waits else None
    usage = answer.usage if answer and answer.lives else None
    return ClusterInfo(
        name=found.name,
        provider=PROVIDER,
        state=phase.state,
        message=message,
        remedy=remedy,
        dashboard_url=answer.url if answer else None,
        created_s=status.created_s(raycluster),
        actions=actions_of(found, phase.state, until_s=until_s),
        workers_ready=ready,
        workers_wanted=wanted,
        groups=status.group_infos(raycluster, pods),
        waiting=(*reasons, *usage.waiting) if usage else reasons,
        kept_until_s=_future(status.seconds_of(raycluster, names.KEPT_UNTIL)),
        **_definition(found),
        **times_of(raycluster, usage, now_s=time.time()),
        **usage.figures() if usage else {},
    )


def _definition(found: Found) -> dict[str, Any]:
    """What does not change while it runs."""
    raycluster = found.raycluster
    return {
        "context": found.place.context,
        "namespace": found.place.namespace,
        "ray_version": status.ray_version(raycluster),
        "queue": status.queue_of(raycluster),
        "image": status.image_of(raycluster),
        "is_adopted": not status.is_ours(raycluster),
    }


def infos_of(found: Sequence[Found]) -> list[ClusterInfo]:
    """Of many at once, asked beside each other; of a long list a few clusters at a time."""
    is_long = len(found) > _ASKED_AT_ONCE
    until_s = time.monotonic() + (_LONG_LIST_S if is_long else _LIST_S)
    unknown = [one for one in found if _is_unknown(one)]
    later = {one.uid for one in unknown[_ASKED_AT_ONCE:]}
    for one in found:
        if one.uid not in later and status.phase_of(one.raycluster).asks_ray:
            ask_ray(one, until_s=0.0)
    return [info_of(one, until_s=until_s, in_list=True, asks=one.uid not in later) for one in found]


def _is_unknown(found: Found) -> bool:
    """There is something to ask about it, and nobody has."""
    phase = status.phase_of(found.raycluster)
    if phase.asks_ray:
        return not is_known(found)
    return phase.state is ClusterState.STARTING and found.uid not in _explained


def actions_of(
    found: Found, state: ClusterState, *, until_s: float | None = None
) -> dict[ClusterAction, str]:
    """Each action with the reason why it cannot be done now, or an empty text."""
    lacking = rights.missing(found.kube, found.place.namespace, until_s=until_s)
    denied = rights.refusals(lacking, found.place.namespace)
    is_leaving = bool(found.raycluster["metadata"].get("deletionTimestamp"))
    gone = "It is being deleted" if is_leaving else ""
    return {
        action: denied.get(action) or gone or _NOT_NOW.get(action, {}).get(state, "")
        for action in ClusterAction
    }


def pods_of_cluster(found: Found, *, patience_s: float = _PODS_S) -> list[Obj] | None:
    """From the namespace's one watch of pods; None where they may not be seen."""
    try:
        seen = pods_of(found.kube, found.place.namespace).look(patience_s=patience_s)
    except KubeError:
        return None
    own, label = found.own_name, names.RAY_CLUSTER_LABEL
    pods = seen.items.values()
    return [pod for pod in pods if (pod["metadata"].get("labels") or {}).get(label) == own]


def _with_ray(phase: Phase, answer: RayAnswer | None, *, is_away: bool, in_list: bool) -> Phase:
    """The operator is satisfied; only Ray's own answer makes it ready."""
    if not phase.asks_ray:
        return phase
    # The way to Ray goes through the same API server: silence then says nothing of Ray.
    if is_away or (answer is not None and answer.lives):
        return Phase(ClusterState.READY)
    if answer is not None:
        return Phase(ClusterState.STARTING, answer.why, asks_ray=True)
    if in_list:
        return Phase(ClusterState.READY, "Ray itself was not asked in time")
    return Phase(ClusterState.STARTING, "Ray's own API has not answered yet")


def _why(
    found: Found, phase: Phase, answer: RayAnswer | None, *, until_s: float | None
) -> tuple[Waiting, ...]:
    raycluster = found.raycluster
    short = status.workers_ready(raycluster) < status.workers_wanted(raycluster)
    # A change that breaks the operator's own rules shows in an event only.
    short = short or status.generation_behind(raycluster)
    waits = phase.state in (ClusterState.STARTING, ClusterState.STOPPING)
    if found.error is not None or not (waits or (short and phase.state is ClusterState.READY)):
        return ()
    lives = None if answer is None else answer.lives
    # Another phase has other reasons; another count of the same ones may wait a moment.
    step = "".join(char for char in phase.message if not char.isdigit())
    generation = raycluster["metadata"].get("generation")
    key = (id(found.kube), found.uid, generation, step)
    patience_s = _NEXT_S if found.uid in _explained else None
    reasons = _reasons.get(
        key, lambda: _look_why(found, lives), until_s=until_s, patience_s=patience_s
    )
    if reasons is None:
        return ()
    if len(_explained) > _MAX_EXPLAINED:
        _explained.clear()
    _explained.add(found.uid)
    return reasons


def _look_why(found: Found, ray_answers: bool | None) -> tuple[Waiting, ...]:
    from llmops_kernel.clusters.kuberay.pending import waiting
    from llmops_kernel.clusters.kuberay.world import gather

    try:
        world = gather(
            found.kube,
            found.place.namespace,
            found.own_name,
            raycluster=found.raycluster,
            pods=pods_of_cluster(found),
            ray_answers=ray_answers,
        )
    except KubeError as error:
        return (Waiting(message=error.message, remedy=error.remedy, kind="permission"),)
    return waiting(world)


def _words(found: Found, phase: Phase, reasons: tuple[Waiting, ...]) -> tuple[str, str]:
    if found.error is not None and found.old_s > _QUIET_S:
        message = f"As known {found.old_s:.0f} s ago: {found.error.message}"
        return message, found.error.remedy
    if reasons and phase.state is not ClusterState.STOPPING:
        also = f" ({phase.message})" if phase.asks_ray else ""
        return f"{reasons[0].message}{also}", reasons[0].remedy
    if phase.state is ClusterState.STOPPED:
        return phase.message, f"llmops resume {found.name}"
    return phase.message, ""


def _future(moment_s: float | None) -> float | None:
    return moment_s if moment_s is not None and moment_s > time.time() else None
