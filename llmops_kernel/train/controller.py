"""Ray Train's controller inside the driver's process, without actors that a run has no use for.

`TorchTrainer.fit` starts a controller actor, which starts three more (a cleaner of placement
groups, a manager of Ray Datasets with its coordinator, a barrier for `ray.train.report`): five
processes before and beside the workers. The driver can be the controller itself: both end
together anyway. A placement group that is not detached goes with its job. A run reads its own
data, and writes its own checkpoints after barriers of the process group.
"""

from __future__ import annotations

import asyncio
from typing import Any

import ray
from ray.train import FailureConfig, Result
from ray.train.torch import TorchTrainer
from ray.train.v2._internal.callbacks.accelerators import AcceleratorSetupCallback
from ray.train.v2._internal.callbacks.backend_setup import BackendSetupCallback
from ray.train.v2._internal.execution.controller import TrainController
from ray.train.v2._internal.execution.worker_group import WorkerGroup, state, worker_group

from llmops_kernel.runs.spec import RunSpec
from llmops_kernel.train.policy import RunFailurePolicy


class _NoBarrier:
    """In the place of the actor behind `ray.train.report`, which no run calls."""

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
    """Workers that know of no controller actor."""

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
    """Its worker group is ours."""

    worker_group_cls = RunWorkerGroup


class RunTrainer(TorchTrainer):
    """TorchTrainer with our failure policy and controller; Ray 2.60 has no place for either."""

    def __init__(self, *args: Any, spec: RunSpec, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._spec = spec

    def _create_default_callbacks(self) -> list[Any]:
        return [
            AcceleratorSetupCallback(self.backend_config, self.scaling_config),
            BackendSetupCallback(self.backend_config),
        ]

    def _initialize_and_run_controller(self, **controller: Any) -> Result:
        failures = self.run_config.failure_config or FailureConfig()
        controller["failure_policy"] = RunFailurePolicy(failures, self._spec)
        made = RunController(**controller)
        asyncio.run(made.run())
        return made.get_result()


def leave_out_barrier() -> None:
    """Ray makes and ends the actor by its names in these modules, with each worker group."""
    worker_group.SynchronizationActor = _NoBarrier
    state._shutdown_sync_actor = lambda _: None
