"""Makes the trainer of an attempt: ours where Ray has what it needs, else Ray's TorchTrainer."""

from __future__ import annotations

import asyncio
import importlib
import os
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any

import ray
from ray.train import FailureConfig, Result
from ray.train.torch import TorchConfig, TorchTrainer
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from llmops_kernel.config.less_memory import describe_changes, next_setting
from llmops_kernel.driver import compat
from llmops_kernel.driver import kv_store as kv
from llmops_kernel.driver.nodes import Node, NodeHolds, oom_kills, this_node
from llmops_kernel.driver.queue_watch import QueueWatch
from llmops_kernel.hardware import loopback
from llmops_kernel.metrics.events import RestartEvent, WarningEvent
from llmops_kernel.store.record import RunSpec
from llmops_kernel.store.run_lines import RunLines
from llmops_kernel.train.ray.batch_search import correct
from llmops_kernel.train.ray.failures import (
    cause,
    describe_shortage,
    is_code_failure,
    out_of_memory,
    reported,
)
from llmops_kernel.train.ray.worker import (
    config_changes,
    config_in_force,
    newest_step,
    open_journal,
)


def make_trainer(
    spec: RunSpec,
    *arguments: Any,
    holds: NodeHolds,
    queue: QueueWatch,
    load: compat.Load = importlib.import_module,
    restarts: bool = True,
    **options: Any,
) -> tuple[Any, WarningEvent | None]:
    """Return a trainer with `fit()`, and a warning if it is Ray's own.

    Without `restarts` it raises whatever ends its first worker group.
    `arguments` and `options` are TorchTrainer's. Ray's own trainer reports no nodes to `holds`
    and not to `queue` that it waits.
    """
    if lacking := compat.missing(load=load):
        from ray.train.torch import TorchTrainer

        return TorchTrainer(*arguments, **options), _warning(lacking)

    leave_out_barrier()
    options.setdefault("torch_config", RunTorchConfig())
    return RunTrainer(
        *arguments, spec=spec, holds=holds, queue=queue, restarts=restarts, **options
    ), None


def _warning(lacking: list[str]) -> WarningEvent:
    import ray

    omitted = f" and {len(lacking) - 1} more" if len(lacking) > 1 else ""
    return WarningEvent(
        message=f"Ray {ray.__version__} has no {lacking[0]}{omitted}, so the stock TorchTrainer is"
        " used: the run starts slower, and Ray also restarts it after an error in the code.",
        remedy=f"use Ray {compat.CHECKED_ON} in the cluster's image",
    )


# --- Ray Train's controller in the driver's process ---
# `TorchTrainer.fit` starts a controller actor, which starts three more (a cleaner of placement
# groups, a manager of Ray Datasets with its coordinator, a barrier for `ray.train.report`): five
# processes besides the workers. The driver can be the controller itself, as both end together. A
# placement group that is not detached is removed with its job. A run reads its own data, and
# writes its own checkpoints after barriers of the process group.
#
# Import this only where `compat.missing()` is empty.


WorkerGroupCallback: Any = compat.get("WorkerGroupCallback")
WorkerGroup: Any = compat.get("WorkerGroup")
TrainController: Any = compat.get("TrainController")
DefaultFailurePolicy: Any = compat.get("DefaultFailurePolicy")
FailureDecision: Any = compat.get("FailureDecision")


class RunFailurePolicy(DefaultFailurePolicy):
    """Restarts after a lost worker, and raises an error in the code: it would only come again.

    Ray's default policy restarts after both, so the user waits for the same traceback twice. What
    runs out of memory is restarted with a setting that needs less, as long as there is one.
    """

    def __init__(
        self, failure_config: FailureConfig, spec: RunSpec, *, kills: NodeKills, on_gpu: bool
    ) -> None:
        super().__init__(failure_config)
        self._spec, self._kills, self._on_gpu = spec, kills, on_gpu

    def make_decision(self, training_failed_error: Any) -> Any:
        """Return RAISE for an error in the code, else what Ray's default policy decides."""
        if self._adapt(training_failed_error):
            return FailureDecision.RETRY
        if is_code_failure(training_failed_error):
            return FailureDecision.RAISE
        decision = super().make_decision(training_failed_error)
        if decision is FailureDecision.RETRY:
            self._journal_restart(training_failed_error)
        return decision

    def _adapt(self, error: Any) -> bool:
        """Choose the next setting if memory ran out; return whether there is one."""
        config = config_in_force(self._spec)
        if config.training.on_oom == "stop":
            return False
        failure = out_of_memory(error, reported(self._spec), is_kernel=self._kills.happened)
        if failure is None:
            return False
        changes = next_setting(
            config, on_gpu=self._on_gpu, in_evaluation=failure.phase == "evaluate"
        )
        if changes is None:
            return False
        name = kv.key(self._spec.run_id, self._spec.attempt, "changes")
        kv.put(name, [*config_changes(self._spec), changes])
        correct(self._spec, changes)
        words = describe_changes(config, changes)
        text = f"{describe_shortage(failure)}; goes on with {words}"
        self._journal(RestartEvent(from_step=newest_step(self._spec), cause=text, changes=changes))
        return True

    def _journal_restart(self, error: Any) -> None:
        self._journal(
            RestartEvent(
                from_step=newest_step(self._spec),
                cause=cause(error),
                failures_left=self.failure_config.max_failures - self._worker_group_failures,
            )
        )

    def _journal(self, event: RestartEvent) -> None:
        writer = open_journal(self._spec, "controller")
        RunLines().take(writer.emit(event))
        writer.close()


Kills = tuple[str, int | None]
"""A node's id, and what `oom_kills` returns there."""


def kills_here() -> tuple[Node, Kills]:
    """Return this worker's node, and how often memory ran out on it so far."""
    node = this_node()
    return node, (node[0], oom_kills())


class NodeKills:
    """Knows whether the kernel killed a process of a worker's node because memory ran out.

    A worker that was killed by signal 9 does not say by whom.
    """

    def __init__(self) -> None:
        self._at_start: list[Kills] = []

    def begin(self, kills: Sequence[Kills]) -> None:
        """Take the counts of the nodes of all ranks, when a worker group starts."""
        self._at_start = list(kills)

    def happened(self, ranks: Sequence[int]) -> bool:
        """Return whether one of the ranks' nodes counts more such kills than at the start."""
        before = dict(self._at_start[rank] for rank in ranks if rank < len(self._at_start))
        for node_id, count in before.items():
            now = self._now(node_id)
            if count is not None and now is not None and now > count:
                return True
        return False

    def _now(self, node_id: str) -> int | None:
        if node_id == this_node()[0]:
            return oom_kills()
        # A node that is gone or has no process left does not answer.
        with suppress(Exception):
            there = NodeAffinitySchedulingStrategy(node_id, soft=False)
            task = ray.remote(num_cpus=0, scheduling_strategy=there)(oom_kills)
            return ray.get(task.remote(), timeout=_ANSWER_S)
        return None


_ANSWER_S = 20.0


class _NoBarrier:
    """Replaces the actor behind `ray.train.report`, which no run calls."""

    @classmethod
    def options(cls, **_: Any) -> type[_NoBarrier]:
        return cls

    @classmethod
    def remote(cls, **_: Any) -> _NoBarrier:
        return cls()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise RuntimeError(
            "ray.train.report is not available in a run: metrics go to the journal and the loop"
            " writes checkpoints itself (see checkpoint.every_steps)"
        )


class RunWorkerGroup(WorkerGroup):
    """Starts workers without passing them a controller actor."""

    def _init_train_context_on_workers(
        self, workers: list[Any], sync_actor: Any, train_context_args: dict[str, list[Any]]
    ) -> None:
        ray.get(
            [
                worker.actor.init_train_context.remote(
                    train_run_context=self._train_run_context,
                    distributed_context=worker.distributed_context,
                    synchronization_actor=sync_actor,
                    storage_context=self._storage_context,
                    worker_callbacks=self._worker_callbacks_to_propagate,
                    controller_actor=None,
                    **{name: values[i] for name, values in train_context_args.items()},
                )
                for i, worker in enumerate(workers)
            ]
        )


class RunController(TrainController):
    """Uses RunWorkerGroup."""

    worker_group_cls = RunWorkerGroup


class HoldsCallback(WorkerGroupCallback):
    """Reports the nodes of each worker group, from its start to its end."""

    def __init__(self, holds: NodeHolds, kills: NodeKills) -> None:
        self._holds, self._kills = holds, kills

    def after_worker_group_start(self, worker_group: Any) -> None:
        answers = worker_group.execute(kills_here)
        self._holds.use(node for node, _ in answers)
        self._kills.begin([kills for _, kills in answers])

    def before_worker_group_shutdown(self, worker_group: Any) -> None:
        self._holds.use(())


class QueueCallback(WorkerGroupCallback):
    """Reports for what a worker group waits, from its request to its start."""

    def __init__(self, queue: QueueWatch) -> None:
        self._queue = queue

    def before_worker_group_start(self, worker_group_context: Any) -> None:
        per_worker = worker_group_context.resources_per_worker
        count = worker_group_context.num_workers
        if not self._queue.begin({name: amount * count for name, amount in per_worker.items()}):
            raise RuntimeError("the run was stopped while it waited for its turn")

    def after_worker_group_start(self, worker_group: Any) -> None:
        self._queue.granted()


class RunTrainer(TorchTrainer):
    """TorchTrainer with our failure policy and controller; Ray 2.60 has no option for either."""

    def __init__(
        self,
        *args: Any,
        spec: RunSpec,
        holds: NodeHolds,
        queue: QueueWatch,
        restarts: bool,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self._spec, self._holds, self._queue = spec, holds, queue
        self._restarts = restarts
        self.kills = NodeKills()

    def _create_default_callbacks(self) -> list[Any]:
        return [
            compat.get("AcceleratorSetupCallback")(self.backend_config, self.scaling_config),
            compat.get("BackendSetupCallback")(self.backend_config),
            HoldsCallback(self._holds, self.kills),
            QueueCallback(self._queue),
        ]

    def _initialize_and_run_controller(self, **controller: Any) -> Result:
        self._holds.begin(this_node())
        failures = self.run_config.failure_config or FailureConfig()
        if self._restarts:
            controller["failure_policy"] = RunFailurePolicy(
                failures, self._spec, kills=self.kills, on_gpu=bool(self.scaling_config.use_gpu)
            )
        runner = RunController(**controller)
        asyncio.run(runner.run())
        return runner.get_result()


def leave_out_barrier() -> None:
    """Replace the actor that Ray starts and ends with each worker group, in Ray's modules."""
    compat.get("worker_group_module").SynchronizationActor = _NoBarrier
    compat.get("state_module")._shutdown_sync_actor = lambda _: None


# --- Process group of a run; workers of one node meet in a file, not at an open port ---
# torch's TCPStore listens on every address of the machine, asks nobody who they are, and what is
# read from it is unpickled. Ray's own set-up always uses one. A file in a private folder of the
# node does the same for workers of one node, and a single worker needs nobody to meet. Workers on
# several nodes still use Ray's set-up, on the network of the nodes or pods.
#
# Import this only where `compat.missing()` is empty.


TorchBackend: Any = compat.get("TorchBackend")
_TORCHS_PORT = "29500"


class RunTorchConfig(TorchConfig):
    """TorchConfig with our backend."""

    @property
    def backend_cls(self) -> Any:
        return RunBackend


class RunBackend(TorchBackend):
    """Ray Train's torch backend, without a TCPStore where all workers are on one node."""

    def on_start(self, worker_group: Any, backend_config: TorchConfig) -> None:
        """Make the process group on all workers."""
        workers = worker_group.get_workers()
        if len({worker.metadata.node_id for worker in workers}) > 1:
            super().on_start(worker_group, backend_config)
            return
        folder = worker_group.execute_single(0, new_folder) if len(workers) > 1 else None
        backend = backend_config.backend or _backend(worker_group.get_resources_per_worker())
        joins = [
            worker_group.execute_single_async(
                rank,
                join,
                backend=backend,
                world_rank=rank,
                world_size=len(workers),
                folder=folder,
                timeout_s=backend_config.timeout_s,
            )
            for rank in range(len(workers))
        ]
        ray.get(joins)


def _backend(resources: dict[str, float]) -> str:
    return "nccl" if resources.get("GPU", 0) > 0 else "gloo"


def new_folder() -> str:
    """Create a folder that only this user can open; it is removed with Ray's session."""
    logs = compat.ray_logs()
    return tempfile.mkdtemp(prefix="llmops-group-", dir=logs.parent if logs else None)


def join(
    *, backend: str, world_rank: int, world_size: int, folder: str | None, timeout_s: float
) -> None:
    """Join the process group in this worker process; `folder` is None for a single worker."""
    import torch.distributed as dist

    compat.get("set_torch_env_vars")()
    for name, value in loopback.settings().items():
        os.environ.setdefault(name, value)
    # Accelerate and DeepSpeed look for both, and use neither where a group exists.
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = loopback.ADDRESS, _TORCHS_PORT
    if backend == "nccl" and "TORCH_NCCL_BLOCKING_WAIT" not in os.environ:
        # As Ray does: an operation that times out fails instead of waiting forever.
        os.environ.setdefault("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1")
    # Of torch's stores those two open no port.
    store = dist.FileStore(f"{folder}/store", world_size) if folder else dist.HashStore()
    dist.init_process_group(
        backend=backend,
        store=store,
        rank=world_rank,
        world_size=world_size,
        timeout=timedelta(seconds=timeout_s),
    )
