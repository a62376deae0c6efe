"""Shows what an action would do to a RayCluster, before it is done."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from llmops_kernel.providers.dashboard import RUN_KEY, described_job, is_active
from llmops_kernel.providers.kuberay.resource import status
from llmops_kernel.providers.kuberay.resource.objects import appliers, owners
from llmops_kernel.providers.kuberay.state.discovery import LocatedCluster
from llmops_kernel.providers.kuberay.state.info import pods_of_cluster
from llmops_kernel.providers.kuberay.state.ray_probe import jobs_of
from llmops_kernel.providers.protocol import ActionPreview, ClusterAction, ClusterInfo, ClusterState

_RUNS: Final = "runs with their journals, and what they wrote to storage outside the pods"
_LIVE: Final = (ClusterState.READY, ClusterState.STARTING)
_LOST: Final = "Ray's list of jobs and its logs"
_ON_HEAD: Final = ", unless all of its workers are on the head"
_ELASTIC: Final = (
    " Clusters keep their head where Kueue's feature gate ElasticJobsViaWorkloadSlices is on and"
    " they are created by this version of llmops."
)

_IDLE_GO: Final = " Ray's autoscaler removes those that stay idle."


def preview_of(located: LocatedCluster, info: ClusterInfo, action: ClusterAction) -> ActionPreview:
    """Return the preview. Asks Ray what runs, and says so if that is unknown."""
    restarts = ends_head(located, action)
    lives = restarts or info.head_runs or info.state in _LIVE
    jobs = jobs_of(located) if restarts or info.head_runs or info.is_ready else None
    pods = pods_of_cluster(located) if lives else []
    ends = restarts or action in (ClusterAction.SUSPEND, ClusterAction.DELETE)
    stays = _head_stays(located, action)
    stops = []
    if ends and lives:
        may_go_on = stays and status.head_takes_work(located.raycluster)
        stops = [*_work(info, jobs, may_go_on=may_go_on), *_pods(pods, head_stays=stays)]
    is_busy = jobs is None or any(map(is_active, jobs))
    return ActionPreview(
        cluster=info.name,
        action=action,
        summary=_summary(located, action) + _undoing(located, action),
        stops=tuple(stops),
        keeps=(_RUNS,) if action is ClusterAction.DELETE else (_RUNS, "its definition"),
        needs_confirmation=action is ClusterAction.DELETE or bool(stops and is_busy),
    )


def ends_head(located: LocatedCluster, action: ClusterAction) -> bool:
    """Return whether Kueue deletes the head, too, because the number of workers changes."""
    resizes = action in (ClusterAction.SUSPEND, ClusterAction.RESUME, ClusterAction.SCALE)
    return resizes and status.is_replaced_when_resized(located.raycluster)


def _head_stays(located: LocatedCluster, action: ClusterAction) -> bool:
    """Return whether only the workers end."""
    is_queued = bool(status.queue_of(located.raycluster))
    return action is ClusterAction.SUSPEND and is_queued and not ends_head(located, action)


def _summary(located: LocatedCluster, action: ClusterAction) -> str:
    name, queue = located.name, status.queue_of(located.raycluster)
    if ends_head(located, action):
        return (
            f"Changes the number of workers of cluster {name}. It is not an elastic job of Kueue"
            f" (queue {queue}), so Kueue deletes all of its pods, also the head, and admits the"
            f" cluster again with the new size.{_ELASTIC}"
        )
    if action is ClusterAction.SUSPEND and queue:
        return (
            f"Scales cluster {name} to zero workers. Kueue owns its suspension (queue {queue}),"
            " so the head keeps running; delete the cluster to release all of its quota."
        )
    return {
        ClusterAction.SUSPEND: f"Deletes all pods of cluster {name}; `resume` creates new ones.",
        ClusterAction.RESUME: f"Creates the pods of cluster {name} again.",
        ClusterAction.SCALE: (
            f"Changes the number of pods in worker groups of cluster {name}; other pods keep"
            f" running.{_IDLE_GO if status.is_autoscaled(located.raycluster) else ''}"
        ),
        ClusterAction.DELETE: (
            f"Deletes RayCluster {located.own_name} in {located.scope}, with its pods and its"
            " service."
        ),
    }[action]


def _undoing(located: LocatedCluster, action: ClusterAction) -> str:
    """Return who applies a manifest that holds what the action changes, as a further sentence."""
    live = located.kube.get(located.path)  # The cache keeps no managedFields: the field owners.
    managers = appliers(live)
    pauses = action in (ClusterAction.SUSPEND, ClusterAction.RESUME)
    if pauses and not status.queue_of(live):
        of_suspend = owners(live, ("spec", "suspend"))
        managers = tuple(manager for manager in managers if manager in of_suspend)
    if not managers:
        return ""
    verbs = "applies a manifest" if len(managers) == 1 else "apply manifests"
    return (
        f" {' and '.join(managers)} {verbs} of this cluster and may undo this: change it there"
        " as well."
    )


def _work(
    info: ClusterInfo, jobs: Sequence[dict[str, Any]] | None, *, may_go_on: bool
) -> list[str]:
    if jobs is not None:
        return [_described(job, may_go_on=may_go_on) for job in jobs if is_active(job)]
    if info.state is ClusterState.STARTING:
        return ["its start, which is in progress"]
    return ["whatever runs on it: Ray did not report its jobs"]


def _described(job: Mapping[str, Any], *, may_go_on: bool) -> str:
    is_run = bool((job.get("metadata") or {}).get(RUN_KEY))
    return f"{described_job(job)}{_ON_HEAD if may_go_on and is_run else ''}"


def _pods(pods: Sequence[Any] | None, *, head_stays: bool) -> list[str]:
    workers = None if pods is None else sum(not _is_head(pod) for pod in pods)
    if workers is None:
        return [] if head_stays else ["the head pod and all worker pods", _LOST]
    worker_pods = f"{workers} worker pod{'' if workers == 1 else 's'}"
    return [worker_pods] if head_stays else [f"the head pod and {worker_pods}", _LOST]


def _is_head(pod: Any) -> bool:
    labels = pod["metadata"].get("labels") or {}
    return bool(labels.get("ray.io/node-type") == "head")
