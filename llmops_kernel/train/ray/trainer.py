"""Makes the trainer of an attempt: ours where Ray has what it needs, else Ray's TorchTrainer."""

from __future__ import annotations

import importlib
from typing import Any

from llmops_kernel.driver import compat
from llmops_kernel.driver.nodes.holds import NodeHolds
from llmops_kernel.driver.queue.watch import QueueWatch
from llmops_kernel.metrics.events import WarningEvent
from llmops_kernel.store.record.spec import RunSpec


def make_trainer(
    spec: RunSpec,
    *arguments: Any,
    holds: NodeHolds,
    queue: QueueWatch,
    load: compat.Load = importlib.import_module,
    **options: Any,
) -> tuple[Any, WarningEvent | None]:
    """Return a trainer with `fit()`, and a warning if it is Ray's own.

    `arguments` and `options` are TorchTrainer's. Ray's own trainer reports no nodes to `holds`
    and not to `queue` that it waits.
    """
    if lacking := compat.missing(load=load):
        from ray.train.torch import TorchTrainer

        return TorchTrainer(*arguments, **options), _warning(lacking)
    from llmops_kernel.train.ray.backend import RunTorchConfig
    from llmops_kernel.train.ray.controller import RunTrainer, leave_out_barrier

    leave_out_barrier()
    options.setdefault("torch_config", RunTorchConfig())
    return RunTrainer(*arguments, spec=spec, holds=holds, queue=queue, **options), None


def _warning(lacking: list[str]) -> WarningEvent:
    import ray

    more = f" and {len(lacking) - 1} more" if len(lacking) > 1 else ""
    return WarningEvent(
        message=f"Ray {ray.__version__} has no {lacking[0]}{more}, so the stock TorchTrainer is"
        " used: the run starts slower, and Ray also restarts it after an error in the code.",
        remedy=f"use Ray {compat.CHECKED_ON} in the cluster's image",
    )
