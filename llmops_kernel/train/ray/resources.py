"""Checks that the cluster can hold the workers, before Ray Train would wait forever."""

from __future__ import annotations

from dataclasses import dataclass

import ray

from llmops_kernel.config.models.train import TrainingConfig
from llmops_kernel.driver.engines import free_idle
from llmops_kernel.driver.queue_place import ClusterCapacity
from llmops_kernel.errors import ClusterError

_BUSY = "another run uses the rest; `llmops status` shows which, `llmops stop` ends it"
_GROWS = "Ray's autoscaler adds nodes; `llmops status` shows what they wait for"


@dataclass(frozen=True)
class Resources:
    use_gpu: bool
    per_worker: dict[str, float]
    warning: str = ""
    remedy: str = ""


def resources(config: TrainingConfig, capacity: ClusterCapacity) -> Resources:
    """Return what a worker requests. Raises ClusterError if even the idle cluster is too small."""
    parallelism, total = config.parallelism, capacity.total
    gpus = total.get("GPU", 0)
    use_gpu = gpus > 0 if parallelism.use_gpu == "auto" else bool(parallelism.use_gpu)
    per_worker = {"CPU": parallelism.cpus_per_worker or 1.0}
    if use_gpu:
        per_worker["GPU"] = 1.0
    short = [
        f"{amount * parallelism.num_workers:g} {name} are requested, {capacity.has(name)}"
        for name, amount in per_worker.items()
        if amount * parallelism.num_workers > total.get(name, 0)
    ]
    if short:
        raise ClusterError(
            f"{parallelism.num_workers} workers do not fit on the cluster: {'; '.join(short)}.",
            remedy=f"lower parallelism.num_workers (or cpus_per_worker), or {capacity.remedy}",
        )
    return _with_waiting(use_gpu, per_worker, parallelism.num_workers, grows=capacity.grows)


def _with_waiting(
    use_gpu: bool, per_worker: dict[str, float], num_workers: int, *, grows: bool
) -> Resources:
    busy = _busy(per_worker, num_workers)
    if busy and free_idle():
        busy = _busy(per_worker, num_workers)
    if not busy:
        return Resources(use_gpu, per_worker)
    return Resources(
        use_gpu,
        per_worker,
        warning=f"The workers are waiting for free resources on the cluster: {', '.join(busy)}.",
        remedy=_GROWS if grows else _BUSY,
    )


def _busy(per_worker: dict[str, float], num_workers: int) -> list[str]:
    free = ray.available_resources()
    return [
        f"{free.get(name, 0):g} of {amount * num_workers:g} {name} free"
        for name, amount in per_worker.items()
        if amount * num_workers > free.get(name, 0)
    ]
