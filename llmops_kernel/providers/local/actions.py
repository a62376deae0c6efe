"""The actions on a local cluster, and what they would stop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from llmops_kernel.providers.dashboard.rest import described_job, is_active
from llmops_kernel.providers.local.record import HeadRecord
from llmops_kernel.providers.protocol import (
    ActionPreview,
    ClusterAction,
    ClusterInfo,
    ClusterState,
)

_RUNS = "runs with their journals, checkpoints and outputs"
_NOT_NOW = {
    ClusterAction.SUSPEND: {
        ClusterState.STOPPED: "It is already stopped",
        ClusterState.STOPPING: "It is being stopped",
    },
    ClusterAction.RESUME: {
        ClusterState.READY: "It is running",
        ClusterState.STARTING: "It is starting",
        ClusterState.STOPPING: "It is being stopped",
    },
    ClusterAction.SCALE: {
        ClusterState.STARTING: "It is still starting",
        ClusterState.STOPPING: "It is being stopped",
        ClusterState.STOPPED: "It is stopped: resume it first",
        ClusterState.DEAD: "It is dead: resume it first",
    },
}
_SUMMARIES = {
    ClusterAction.SUSPEND: "Stops the processes of cluster {name}; `resume` starts it again.",
    ClusterAction.RESUME: "Starts cluster {name} again as it was defined.",
    ClusterAction.SCALE: (
        "Restarts cluster {name} with the new numbers: a local cluster is one head, whose size"
        " cannot change while it runs"
        "."
    ),
    ClusterAction.DELETE: "Stops cluster {name} and deletes its definition and its logs.",
}


def possible_actions(record: HeadRecord, state: ClusterState) -> dict[ClusterAction, str]:
    """Return each action with the reason why it is not possible now, or an empty text."""
    if record.is_elsewhere:
        refusals = {action: _elsewhere(record) for action in ClusterAction}
        return refusals | {ClusterAction.RESUME: ""}
    return {action: _NOT_NOW.get(action, {}).get(state, "") for action in ClusterAction}


def preview_of(
    info: ClusterInfo,
    action: ClusterAction,
    *,
    jobs: Sequence[Mapping[str, Any]] | None,
    num_processes: int,
) -> ActionPreview:
    """Return the preview. `jobs` are Ray's; None if it did not answer."""
    stops = [] if action is ClusterAction.RESUME else _stopped(info, jobs, num_processes)
    return ActionPreview(
        cluster=info.name,
        action=action,
        summary=_SUMMARIES[action].format(name=info.name),
        stops=tuple(stops),
        keeps=(_RUNS,) if action is ClusterAction.DELETE else (_RUNS, "its definition"),
        needs_confirmation=action is ClusterAction.DELETE or _loses_work(info, jobs, stops),
    )


def _loses_work(
    info: ClusterInfo, jobs: Sequence[Mapping[str, Any]] | None, stops: Sequence[str]
) -> bool:
    if not stops:
        return False
    return jobs is None or info.state is ClusterState.STARTING or any(map(is_active, jobs))


def _stopped(
    info: ClusterInfo, jobs: Sequence[Mapping[str, Any]] | None, num_processes: int
) -> list[str]:
    lives = info.state in (ClusterState.READY, ClusterState.STARTING)
    lines = _running(info, jobs) if lives else []
    if lives and info.num_nodes:
        lines.append(f"{info.num_nodes} node{'' if info.num_nodes == 1 else 's'}")
    if num_processes:
        lines.append(f"{num_processes} process{'' if num_processes == 1 else 'es'}")
    return lines


def _running(info: ClusterInfo, jobs: Sequence[Mapping[str, Any]] | None) -> list[str]:
    if jobs is not None:
        return [described_job(job) for job in jobs if is_active(job)]
    if info.state is ClusterState.STARTING:
        return ["its start, which is in progress"]
    detail = f" ({info.message})" if info.message else ""
    return [f"whatever runs on it: Ray did not report its jobs{detail}"]


def _elsewhere(record: HeadRecord) -> str:
    return f"It was started on host {record.host}: run the command there"
