"""The driver of a script that is started on several workers, as `torchrun` would."""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from llmops_kernel.config.counted import counted
from llmops_kernel.config.models.script import ScriptConfig
from llmops_kernel.driver import compat, report
from llmops_kernel.driver.engines import free_idle
from llmops_kernel.driver.last_lines import LastLines
from llmops_kernel.driver.nodes import NodeHolds, this_node
from llmops_kernel.driver.queue_place import ClusterCapacity, capacity_of
from llmops_kernel.driver.queue_watch import QueueWatch, gave_way, yields_to
from llmops_kernel.driver.storage import ray_logs, run_folder
from llmops_kernel.driver.watch import RunWatch
from llmops_kernel.errors import ClusterError, LLMOpsError
from llmops_kernel.metrics.events import EndEvent, FailureEvent, ProcessEvent
from llmops_kernel.store.record import RunSpec
from llmops_kernel.track.stopping import ASKS, KEPT, STOP, STOPPED
from llmops_kernel.train.failures import group
from llmops_kernel.train.script import ends
from llmops_kernel.train.script.ends import Patience
from llmops_kernel.train.script.meeting import READY_ENV_VAR
from llmops_kernel.train.script.tracking import ClusterBoard

_POLL_S = 0.2
_PEERS_S = 3.0
"""Seconds that the other workers may take to fail as well, before they are ended."""


class WorkersDriver:
    """Starts the workers, waits for all of them, and journals how they end."""

    def __init__(self, spec: RunSpec, config: ScriptConfig) -> None:
        self._spec, self._config = spec, config
        self._num_workers = config.workers or 1
        self._stop_requested = threading.Event()
        self._journal = report.DriverReport(spec, logs=ray_logs(Path.cwd()))
        self._run_watch = RunWatch(
            self._journal.emit,
            spec,
            config.monitor,
            folder=run_folder(spec).root,
            learns_pauses=True,
        )
        self._holds = NodeHolds(self._journal.emit, on_use=self._run_watch.use)
        self._queue = QueueWatch(self._journal.emit, spec=spec)
        self._actors: list[Any] = []
        self._placement: Any = None

    def run(self) -> int:
        """Return the driver's exit status."""
        signal.signal(signal.SIGTERM, lambda *_: self._stop_requested.set())
        import ray

        self._journal.phases_so_far()
        last_lines = LastLines()
        ray.init(log_to_driver=True, configure_logging=False)
        _show_every_line()
        # Again: ray.init installs a handler that exits at once.
        signal.signal(signal.SIGTERM, lambda *_: self._stop_requested.set())
        self._holds.begin(this_node())
        self._run_watch.begin(node=this_node()[0])
        try:
            end = self._attempt()
        except Exception as error:
            end = self._journal.failed([self._own_failure(error)])
        self._queue.end()
        self._run_watch.end()
        last_lines.wait(range(len(self._actors)), returned=end.state == "SUCCEEDED")
        status = self._journal.end(end)
        ray.shutdown()
        return status

    def _own_failure(self, error: Exception) -> FailureEvent:
        if isinstance(error, LLMOpsError):
            return FailureEvent(
                error=type(error).__name__, message=error.message, remedy=error.remedy
            )
        from llmops_kernel.train.script.program import describe_failure

        failure: FailureEvent = describe_failure(error, workspace=Path.cwd())
        report.print_traceback(failure)
        return failure

    def _attempt(self) -> EndEvent:
        request = self._needs()
        self._journal.phase("driver", "end")
        per_worker = {"CPU": request.cpus, "GPU": request.gpus}
        total = {name: amount * self._num_workers for name, amount in per_worker.items()}
        while True:
            self._journal.phase("workers", "begin", detail=counted(self._num_workers, "worker"))
            if not self._queue.begin(total, stop=self._stop_requested):
                return _stopped_before()
            self._actors = self._create(request)
            runs = self._start()
            end = _stopped_before() if runs is None else self._watch(runs)
            if end.state != "STOPPED" or runs is None or not self._gives_way(end):
                return end

    def _gives_way(self, end: EndEvent) -> bool:
        """Return whether the script left for a run that must go before; its workers are ended."""
        import ray

        other = yields_to(self._spec)
        if self._stop_requested.is_set() or not other:
            return False
        for actor in self._actors:
            ray.kill(actor)
        if self._placement is not None:
            ray.util.remove_placement_group(self._placement)
        self._holds.use(())
        self._journal.emit(gave_way(self._spec, other, step=end.last_step))
        return True

    def _needs(self) -> Needs:
        import ray

        capacity = capacity_of(self._spec)
        request = needs(self._config, capacity=capacity, free=ray.available_resources())
        if request.warning and free_idle():
            request = needs(self._config, capacity=capacity, free=ray.available_resources())
        if request.problem:
            raise ClusterError(request.problem, remedy=request.remedy)
        return request

    def _create(self, request: Needs) -> list[Any]:
        import ray

        from llmops_kernel.train.script.actor import ScriptActor

        options: dict[str, Any] = {"num_cpus": request.cpus, "num_gpus": request.gpus}
        actor = ray.remote(ScriptActor)
        if self._num_workers == 1:
            return [actor.options(**options).remote()]
        # All or none: otherwise half of the workers would wait forever for the others.
        bundle = {"CPU": request.cpus} | ({"GPU": request.gpus} if request.gpus else {})
        self._placement = ray.util.placement_group([bundle] * self._num_workers, strategy="PACK")
        strategy = ray.util.scheduling_strategies.PlacementGroupSchedulingStrategy(self._placement)
        return [
            actor.options(**options, scheduling_strategy=strategy).remote()
            for _ in range(self._num_workers)
        ]

    def _start(self) -> list[Any] | None:
        """Start the script on all workers; None when a stop was requested before."""
        import ray

        facts = [actor.facts.remote() for actor in self._actors]
        while len(ray.wait(facts, num_returns=len(facts), timeout=_POLL_S)[0]) < len(facts):
            if self._stop_requested.is_set():
                return None
        self._queue.granted()
        nodes = [WorkerNode(**node) for node in ray.get(facts)]
        self._holds.use((node.node_id, node.price) for node in nodes)
        ranks = layout(nodes)
        first = ranks[0]
        port = ray.get(self._actors[first.index].open_port.remote(for_this_node=first.is_one_node))
        now_s = time.time()
        self._journal.phase("workers", "end", time_s=now_s)
        self._journal.phase("first_step", "begin", time_s=now_s)
        payload = self._spec.model_dump_json()
        runs = []
        for rank in ranks:
            node = nodes[rank.index]
            self._journal.emit(
                ProcessEvent(role="worker", rank=rank.rank, warm=node.warm, reason=node.reason)
            )
            env = rank.env(port, run_id=self._spec.run_id)
            runs.append(self._actors[rank.index].run.remote(payload, env))
        return runs

    def _watch(self, runs: list[Any]) -> EndEvent:
        """Wait for all ranks; when one fails the others are ended soon after."""
        import ray

        ranks = {run: rank for rank, run in enumerate(runs)}
        failures: list[FailureEvent] = []
        pending, deadline_s, was_stopped = list(runs), float("inf"), False
        patience, leave_by_s = Patience.from_env(), float("inf")
        while pending and time.monotonic() < deadline_s:
            done, pending = ray.wait(pending, num_returns=1, timeout=_POLL_S)
            for run in done:
                if failure := self._outcome(run, ranks[run]):
                    failures.append(failure)
                    deadline_s = min(deadline_s, time.monotonic() + _PEERS_S)
            if self._stop_requested.is_set() and not was_stopped:
                was_stopped, leave_by_s = True, time.monotonic() + patience.leave_s
                if not self._request_stop():
                    return ends.ended_at_once()
            if was_stopped and self._run_watch.is_stalled:
                return ends.ended_stalled(self._spec.run_id)
            if time.monotonic() > leave_by_s:
                return ends.did_not_leave(patience.leave_s)
        if failures:
            return self._journal.failed(group(failures))
        return self._ended()

    def _outcome(self, run: Any, rank: int) -> FailureEvent | None:
        import ray

        try:
            described = ray.get(run)
        except ray.exceptions.RayError as error:
            return lost_worker(error, rank=rank)
        return None if described is None else FailureEvent.model_validate(described)

    def _request_stop(self) -> bool:
        """Return True when the script asks whether to stop."""
        print("Stop requested.", flush=True)
        board = ClusterBoard(self._spec)
        board.put(STOP, True)
        return bool(board.get(ASKS))

    def _ended(self) -> EndEvent:
        board = ClusterBoard(self._spec)
        is_asked = self._stop_requested.is_set() or yields_to(self._spec)
        stopped = board.get(STOPPED) if is_asked else None
        if stopped:
            return ends.stopped_end(stopped, newest=board.get(KEPT))
        return EndEvent(state="SUCCEEDED")


def _show_every_line() -> None:
    """Have the log get each line of each worker, as of `torchrun`.

    Ray leaves out lines that another worker has printed with other numbers, unless the cluster
    has settings of its own for that (RAY_DEDUP_LOGS).
    """
    if any(name.startswith("RAY_DEDUP_LOGS") for name in os.environ):
        return
    for name in ("stdout_deduplicator", "stderr_deduplicator"):
        with suppress(ImportError, AttributeError):
            compat.get(name).allow_re = re.compile("")


def _stopped_before() -> EndEvent:
    return EndEvent(state="STOPPED", message="Stopped before the script began.")


def lost_worker(error: Exception, *, rank: int) -> FailureEvent:
    """Return the failure of a worker whose process is gone."""
    text = str(error)
    killed = "SIGKILL" in text or "signal 9" in text or "OOM" in text or "out of memory" in text
    reason = "was killed by signal 9, probably because memory ran out" if killed else "died"
    return FailureEvent(
        error=type(error).__name__,
        message=f"The process of worker rank {rank} {reason}.",
        remedy="if memory ran out, submit it again with a smaller batch size or fewer workers per"
        " node; `llmops retry` resumes from the last checkpoint with the same arguments",
        ranks=(rank,),
        traceback=text,
    )


# --- Ranks and resources of workers. Pure ---


@dataclass(frozen=True)
class WorkerNode:
    """The node of a worker."""

    node_id: str
    host: str
    gpus: tuple[str, ...] = ()
    warm: bool = False
    reason: str = ""
    price: str = ""
    """Price of the node, as it is in the environment of its processes."""


@dataclass(frozen=True)
class WorkerRank:
    """A worker's place in the process group."""

    index: int
    """The worker's position in the order of creation."""
    rank: int
    local_rank: int
    local_world_size: int
    node_rank: int
    world_size: int
    master_addr: str
    gpus: tuple[str, ...]
    """All GPUs of the node's workers, in order of local rank."""

    @property
    def is_one_node(self) -> bool:
        """Return whether all workers are on this worker's node."""
        return self.local_world_size == self.world_size

    def env(self, port: int, *, run_id: str) -> dict[str, str]:
        """Return the variables that `torchrun` sets."""
        env = {
            "RANK": str(self.rank),
            "LOCAL_RANK": str(self.local_rank),
            "WORLD_SIZE": str(self.world_size),
            "LOCAL_WORLD_SIZE": str(self.local_world_size),
            "GROUP_RANK": str(self.node_rank),
            "ROLE_RANK": str(self.rank),
            "ROLE_WORLD_SIZE": str(self.world_size),
            "MASTER_ADDR": self.master_addr,
            "MASTER_PORT": str(port),
            "TORCHELASTIC_RUN_ID": run_id,
            "TORCHELASTIC_RESTART_COUNT": "0",
            "TORCHELASTIC_MAX_RESTARTS": "0",
        }
        if self.is_one_node:
            env[READY_ENV_VAR] = "True"
        if self.gpus:
            # As torchrun's workers see them: a script selects its own by LOCAL_RANK.
            env["CUDA_VISIBLE_DEVICES"] = ",".join(self.gpus)
        return env


def layout(workers: Sequence[WorkerNode]) -> list[WorkerRank]:
    """Number the workers, node after node, so that neighbours in rank share a node."""
    nodes = list(dict.fromkeys(worker.node_id for worker in workers))
    ranks: list[WorkerRank] = []
    first_host = workers[0].host
    master = "127.0.0.1" if len(nodes) == 1 else first_host
    for node_rank, node_id in enumerate(nodes):
        local = [index for index, worker in enumerate(workers) if worker.node_id == node_id]
        gpus = tuple(dict.fromkeys(gpu for index in local for gpu in workers[index].gpus))
        ranks += [
            WorkerRank(
                index=index,
                rank=len(ranks) + local_rank,
                local_rank=local_rank,
                local_world_size=len(local),
                node_rank=node_rank,
                world_size=len(workers),
                master_addr=master,
                gpus=gpus,
            )
            for local_rank, index in enumerate(local)
        ]
    return ranks


@dataclass(frozen=True)
class Needs:
    """The resources that each worker reserves, and whether the cluster has them."""

    cpus: float
    gpus: float
    problem: str = ""
    warning: str = ""
    remedy: str = ""


def needs(config: ScriptConfig, *, capacity: ClusterCapacity, free: Mapping[str, float]) -> Needs:
    """Compare what the workers ask for with the cluster's resources and with what is free."""
    workers, resources, total = config.workers or 1, config.resources, capacity.total
    gpus = (1.0 if total.get("GPU", 0) > 0 else 0.0) if resources.gpus == "auto" else resources.gpus
    requested = {"CPU": resources.cpus * workers, "GPU": gpus * workers}
    short = [
        f"they request {amount:g} {name}, {capacity.has(name)}"
        for name, amount in requested.items()
        if amount > total.get(name, 0)
    ]
    if short:
        return Needs(
            resources.cpus,
            gpus,
            problem=f"{workers} workers do not fit on the cluster: {'; '.join(short)}.",
            remedy=f"lower num_workers or resources, or {capacity.remedy}",
        )
    busy = [
        f"{free.get(name, 0):g} of {amount:g} {name} free"
        for name, amount in requested.items()
        if amount > free.get(name, 0)
    ]
    if busy:
        return Needs(
            resources.cpus,
            gpus,
            warning=f"The workers are waiting for free resources: {', '.join(busy)}.",
            remedy="another run uses the rest; `llmops status` shows which, `llmops stop` ends it",
        )
    return Needs(resources.cpus, gpus)
