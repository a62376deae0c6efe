"""The reason why a run waits, from a snapshot of the cluster."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from llmops_kernel.config.counted import counted, counted_resources
from llmops_kernel.driver import compat
from llmops_kernel.store.record import RunSpec

_NAMED = 3
_OTHER = "other work"


@dataclass(frozen=True)
class QueuePosition:
    reason: str
    place: int | None = None
    """1 for the run whose turn it is; None where there is no order."""
    length: int | None = None
    """Runs that wait for some of the same resources, this one included."""


def find_place(use: ClusterUse) -> QueuePosition | None:
    """Return what this job's requests wait for; None if Ray does not report that they wait."""
    own_requests = [request for request in use.requests if request.job == use.own_job]
    waiting = [request for request in own_requests if request.state == "waits"]
    if waiting:
        return QueuePosition(_reason(waiting, use))
    # Ray does not say of an actor whether it waits for resources or for its process.
    starting = [request for request in own_requests if request.state == "starts"]
    if starting and _cannot_have_started(add(request.amounts for request in starting), use):
        return QueuePosition(_reason(starting, use))
    return None


def _cannot_have_started(amounts: Amounts, use: ClusterUse) -> bool:
    """Return True if a resource is short, and what is in use is in use by others."""
    held_amounts = add(request.amounts for request in use.requests if request.state == "holds")
    for name, amount in amounts.items():
        used = use.total.get(name, 0.0) - use.free.get(name, 0.0)
        if amount > use.free.get(name, 0.0) and used - held_amounts.get(name, 0.0) < amount:
            return True
    return False


def _reason(waiting: list[Request], use: ClusterUse) -> str:
    amounts = add(request.amounts for request in waiting)
    amounts = {name: amount for name, amount in amounts.items() if amount}
    needs = counted_resources(amounts)
    if _grows_enough(amounts, use):
        free = counted_resources({name: use.free.get(name, 0.0) for name in amounts})
        return f"needs {needs}; Ray's autoscaler adds nodes (free now: {free})"
    short = [name for name, amount in amounts.items() if amount > use.free.get(name, 0.0)]
    if any(request.is_too_large for request in waiting):
        return f"needs {needs}; no node of the cluster is large enough yet"
    if not short:
        return f"needs {needs}; no node has enough of them free"
    return f"needs {needs}; {'; '.join(used_text(name, use) for name in short)}"


def _grows_enough(amounts: Amounts, use: ClusterUse) -> bool:
    """Return whether the nodes that the autoscaler may still add have what is short."""
    if use.most is None:
        return False
    lacks = {name: amount - use.free.get(name, 0.0) for name, amount in amounts.items()}
    addable = {name: most - use.total.get(name, 0.0) for name, most in use.most.items()}
    short = [name for name, amount in lacks.items() if amount > 0]
    return bool(short) and all(lacks[name] <= addable.get(name, 0.0) for name in short)


def used_text(name: str, use: ClusterUse) -> str:
    """Return `2 of 2 CPUs are used by run lora-2a4c`."""
    total = use.total.get(name, 0.0)
    used = max(0.0, total - use.free.get(name, 0.0))
    verb = "is" if total == 1 else "are"
    return f"{used:g} of {counted_resources({name: total})} {verb} used{_users(name, used, use)}"


def _users(name: str, used: float, use: ClusterUse) -> str:
    by_run: Amounts = {}
    for request in use.requests:
        if request.state == "holds" and request.amounts.get(name):
            run = use.runs.get(request.job, _OTHER)
            by_run[run] = by_run.get(run, 0.0) + request.amounts[name]
    rest = used - sum(by_run.values())
    if rest > 0.01:
        by_run[_OTHER] = by_run.get(_OTHER, 0.0) + rest
    other_amount = by_run.pop(_OTHER, 0.0)
    runs = sorted(by_run, key=lambda run: (-by_run[run], run))
    names = [f"run {run}" for run in runs[:_NAMED]]
    if len(runs) > _NAMED:
        names.append(counted(len(runs) - _NAMED, "more run"))
    if other_amount:
        names.append(_OTHER)
    if not names:
        return ""
    return f" by {', '.join(names[:-1])}{' and ' if names[:-1] else ''}{names[-1]}"


# --- Capacity of a cluster: its resources, or what Ray's autoscaler can add up to ---


@dataclass(frozen=True)
class ClusterCapacity:
    """Resources by Ray's names: `{"CPU": 2.0, "GPU": 1.0}`."""

    total: Mapping[str, float]
    grows: bool = False
    """Ray's autoscaler adds nodes when work needs them: `total` is more than there is now."""

    def has(self, name: str) -> str:
        """Return `the cluster has 4`, or what it can have."""
        verb = "can have at most" if self.grows else "has"
        return f"the cluster {verb} {self.total.get(name, 0):g}"

    @property
    def remedy(self) -> str:
        """Return how to get more resources."""
        if self.grows:
            return "raise max_replicas in the cluster template (`llmops cluster apply`)"
        return "use a larger cluster"


def capacity_of(spec: RunSpec) -> ClusterCapacity:
    """Ask Ray, which this process is connected to."""
    import ray

    current = ray.cluster_resources()
    if spec.most_resources is None:
        return ClusterCapacity(current)
    # A bound that was raised since the submission is seen in what there is.
    most = {name: max(current.get(name, 0.0), bound) for name, bound in spec.most_resources.items()}
    return ClusterCapacity(current | most, grows=True)


# --- Use of a cluster's resources, as Ray's control plane has it ---


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
    """A snapshot of the cluster."""

    own_job: str
    total: Amounts
    free: Amounts
    requests: tuple[Request, ...] = ()
    runs: Mapping[str, str] = field(default_factory=dict)
    """Run ids by Ray job; a job of other software has none."""
    ended: frozenset[str] = frozenset()
    """Ray jobs whose driver has ended."""
    most: Mapping[str, float] | None = None
    """The most that Ray's autoscaler can add up to; None: no autoscaler."""


def add(amounts: Iterable[Mapping[str, float]]) -> Amounts:
    """Return the sum by resource."""
    total: Amounts = {}
    for resources in amounts:
        for name, amount in resources.items():
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
    """Yield the actors outside of placement groups that hold or ask for resources."""
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
    runs, ended = {}, set()
    for job in map(table.FromString, jobs):
        if job.is_dead:
            ended.add(job.job_id.hex())
        if run := job.config.metadata.get(_RUN_METADATA):
            runs[job.job_id.hex()] = f"{run} (ended; its engine is loaded)" if job.is_dead else run
    return runs, frozenset(ended)
