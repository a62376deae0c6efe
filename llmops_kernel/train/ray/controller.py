"""Ray Train's controller in the driver's process, without actors that a run does not need.

`TorchTrainer.fit` starts a controller actor, which starts three more (a cleaner of placement
groups, a manager of Ray Datasets with its coordinator, a barrier for `ray.train.report`): five
processes besides the workers. The driver can be the controller itself, as both end together. A
placement group that is not detached is removed with its job. A run reads its own data, and writes
its own checkpoints after barriers of the process group.

Import this only where `compat.missing()` is empty.
"""

from __future__ import annotations

import asyncio
from typing import Any

import ray
from ray.train import FailureConfig, Result
from ray.train.torch import TorchTrainer

from llmops_kernel.driver import compat
from llmops_kernel.driver.nodes.holds import NodeHolds, this_node
from llmops_kernel.driver.queue.watch import QueueWatch
from llmops_kernel.metrics.events import RestartEvent
from llmops_kernel.store.logs.run_lines import RunLines
from llmops_kernel.store.record.spec import RunSpec
from llmops_kernel.train.ray.context import newest_step, open_journal
from llmops_kernel.train.ray.failures import cause, is_code_failure

WorkerGroupCallback: Any = compat.get("WorkerGroupCallback")
WorkerGroup: Any = compat.get("WorkerGroup")
TrainController: Any = compat.get("TrainController")
DefaultFailurePolicy: Any = compat.get("DefaultFailurePolicy")
FailureDecision: Any = compat.get("FailureDecision")


class RunFailurePolicy(DefaultFailurePolicy):
    """Restarts after a lost worker, and raises an error in the code: it would only come again.

    Ray's default policy restarts after both, so the user waits for the same traceback twice.
    """

    def __init__(self, failure_config: FailureConfig, spec: RunSpec) -> None:
        super().__init__(failure_config)
        self._spec = spec

    def make_decision(self, training_failed_error: Any) -> Any:
        """Return RAISE for an error in the code, else what Ray's default policy decides."""
        if is_code_failure(training_failed_error):
            return FailureDecision.RAISE
        decision = super().make_decision(training_failed_error)
        if decision is FailureDecision.RETRY:
            self._journal_restart(training_failed_error)
        return decision

    def _journal_restart(self, error: Any) -> None:
        writer = open_journal(self._spec, "controller")
        event = RestartEvent(
            from_step=newest_step(self._spec),
            cause=cause(error),
            failures_left=self.failure_config.max_failures - self._worker_group_failures,
        )
        RunLines().take(writer.emit(event))
        writer.close()


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

    def __init__(self, holds: NodeHolds) -> None:
        self._holds = holds

    def after_worker_group_start(self, worker_group: Any) -> None:
        self._holds.use(worker_group.execute(this_node))

    def before_worker_group_shutdown(self, worker_group: Any) -> None:
        self._holds.use(())


class QueueCallback(WorkerGroupCallback):
    """Reports for what a worker group waits, from its request to its start."""

    def __init__(self, queue: QueueWatch) -> None:
        self._queue = queue

    def before_worker_group_start(self, worker_group_context: Any) -> None:
        one = worker_group_context.resources_per_worker
        count = worker_group_context.num_workers
        if not self._queue.begin({name: amount * count for name, amount in one.items()}):
            raise RuntimeError("the run was stopped while it waited for its turn")

    def after_worker_group_start(self, worker_group: Any) -> None:
        self._queue.end()


class RunTrainer(TorchTrainer):
    """TorchTrainer with our failure policy and controller; Ray 2.60 has no option for either."""

    def __init__(
        self, *args: Any, spec: RunSpec, holds: NodeHolds, queue: QueueWatch, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self._spec, self._holds, self._queue = spec, holds, queue

    def _create_default_callbacks(self) -> list[Any]:
        return [
            compat.get("AcceleratorSetupCallback")(self.backend_config, self.scaling_config),
            compat.get("BackendSetupCallback")(self.backend_config),
            HoldsCallback(self._holds),
            QueueCallback(self._queue),
        ]

    def _initialize_and_run_controller(self, **controller: Any) -> Result:
        self._holds.begin(this_node())
        failures = self.run_config.failure_config or FailureConfig()
        controller["failure_policy"] = RunFailurePolicy(failures, self._spec)
        runner = RunController(**controller)
        asyncio.run(runner.run())
        return runner.get_result()


def leave_out_barrier() -> None:
    """Replace the actor that Ray starts and ends with each worker group, in Ray's modules."""
    compat.get("worker_group_module").SynchronizationActor = _NoBarrier
    compat.get("state_module")._shutdown_sync_actor = lambda _: None
