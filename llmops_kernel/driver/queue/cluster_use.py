"""Who uses a cluster's resources and what waits for them, as Ray's control plane has it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from llmops_kernel.driver import compat

_RUN_METADATA = "llmops_run"
"""Name under which a submission puts the run's id into the metadata of the Ray job."""

Amounts = dict[str, float]
"""Resources by Ray's names: `{"CPU": 2.0, "GPU": 1.0}`."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """A placement group, or an actor outside of one."""

    job: str
    """Hexadecimal id of the Ray job that made it."""
    amounts: Amounts
    state: Literal["holds", "waits", "starts"]
    """`waits`: Ray found no room. `starts`: Ray does not say whether it has its resources."""
    asked_ns: int = 0
    is_too_large: bool = False
    """No node of the cluster could hold it, even an idle one."""


@dataclass(frozen=True, kw_only=True)
class ClusterUse:
    """One look at the cluster."""

    own_job: str
    total: Amounts
    free: Amounts
    requests: tuple[Request, ...] = ()
    runs: Mapping[str, str] = field(default_factory=dict)
    """Run ids by Ray job; a job of other software has none."""
    ended: frozenset[str] = frozenset()
    """Ray jobs whose driver has ended."""
    most: Mapping[str, float] | None = None
    """What Ray's autoscaler can bring the cluster to; None: none resizes it."""


def add(amounts: Iterable[Mapping[str, float]]) -> Amounts:
    """Return the sum by resource."""
    total: Amounts = {}
    for one in amounts:
        for name, amount in one.items():
            total[name] = total.get(name, 0.0) + amount
    return total


def read_cluster_use(most: Mapping[str, float] | None = None) -> ClusterUse:
    """Read it from Ray, which this process is connected to."""
    import ray

    accessor = compat.get("global_state")._connect_and_get_accessor()
    runs, ended = _runs(accessor)
    return ClusterUse(
        own_job=str(ray.get_runtime_context().get_job_id()),
        total=ray.cluster_resources(),
        free=ray.available_resources(),
        requests=(*_placement_groups(accessor), *_actors(accessor)),
        runs=runs,
        ended=ended,
        most=most,
    )


def _placement_groups(accessor: Any) -> Iterable[Request]:
    table = compat.get("gcs_pb2").PlacementGroupTableData
    stats = compat.get("gcs_pb2").PlacementGroupStats
    for raw in accessor.get_placement_group_table():
        group = table.FromString(raw)
        if group.state == table.REMOVED:
            continue
        scheduling = group.stats.scheduling_state
        waits = scheduling in (stats.NO_RESOURCES, stats.INFEASIBLE)
        yield Request(
            job=group.creator_job_id.hex(),
            amounts=add(dict(bundle.unit_resources) for bundle in group.bundles),
            state="holds" if group.state == table.CREATED else "waits" if waits else "starts",
            asked_ns=group.stats.creation_request_received_ns,
            is_too_large=scheduling == stats.INFEASIBLE,
        )


def _actors(accessor: Any) -> Iterable[Request]:
    """Actors outside of placement groups, that hold or ask for resources."""
    table = compat.get("gcs_pb2").ActorTableData
    for name, state in (("ALIVE", "holds"), ("PENDING_CREATION", "starts")):
        for raw in accessor.get_actor_table(None, name):
            actor = table.FromString(raw)
            # Ray writes an absent id as bytes of ones.
            if actor.required_resources and not actor.placement_group_id.strip(b"\xff"):
                yield Request(
                    job=actor.job_id.hex(),
                    amounts=dict(actor.required_resources),
                    state="holds" if state == "holds" else "starts",
                )


def _runs(accessor: Any) -> tuple[dict[str, str], frozenset[str]]:
    """Return the run of each Ray job that is one, and the jobs that have ended."""
    table = compat.get("gcs_pb2").JobTableData
    jobs = accessor.get_job_table(
        skip_submission_job_info_field=True, skip_is_running_tasks_field=True
    )
    named, ended = {}, set()
    for job in map(table.FromString, jobs):
        if job.is_dead:
            ended.add(job.job_id.hex())
        if run := job.config.metadata.get(_RUN_METADATA):
            named[job.job_id.hex()] = f"{run} (ended; its engine is loaded)" if job.is_dead else run
    return named, frozenset(ended)
