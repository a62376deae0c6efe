"""Describe in a few lines what a valid config does."""

from __future__ import annotations

from llmops_kernel.config.models.cluster import AnyTemplate, ClusterTemplate
from llmops_kernel.config.models.describe import compact
from llmops_kernel.config.models.kuberay import KubeRayTemplate
from llmops_kernel.config.models.kuberay_pods import WorkerGroup
from llmops_kernel.config.models.train import TrainingConfig


def training_effect(config: TrainingConfig) -> list[str]:
    """Describe what is trained on what, the batch size, and for how long."""
    model, training = config.model, config.training
    return [
        f"Trains {model.id} in {model.dtype} on {config.data.train}: {config.method.describe()}.",
        f"Global batch size {batch_words(config)}.",
        f"{_length(config)}, {config.parallelism.strategy}, learning rate "
        f"{compact(config.optimizer.learning_rate)} ({config.optimizer.lr_scheduler_type})"
        + (f"; {training.max_failures} restart(s) after a lost worker." if training.max_failures
           else "."),
    ]  # fmt: skip


def batch_words(config: TrainingConfig) -> str:
    """`16 = 4 sequence(s) x 2 worker(s) x 2 accumulation step(s)`."""
    micro, workers = config.training.micro_batch_size, config.parallelism.num_workers
    total, passes = config.training.global_batch_size, config.gradient_accumulation_steps
    return f"{total} = {micro} sequence(s) x {workers} worker(s) x {passes} accumulation step(s)"


def training_facts(config: TrainingConfig) -> dict[str, str]:
    """Return what `llmops check` prints of a training config, by label."""
    return {
        "model": config.model.id,
        "data": config.data.train,
        "method": f"{config.method.type}, {config.parallelism.strategy}",
        "global batch size": batch_words(config),
    }


def _length(config: TrainingConfig) -> str:
    training = config.training
    if training.max_steps is not None:
        return f"{training.max_steps} step(s)"
    return f"{training.num_epochs:g} epoch(s)"


def cluster_effect(template: AnyTemplate) -> list[str]:
    """Describe what `llmops up` starts."""
    warm = "with a fork server" if template.warm.enabled else "without a fork server"
    if isinstance(template, KubeRayTemplate):
        lines = [f"Cluster {template.name}: a Ray head on Kubernetes ({_where(template)}), {warm}."]
        lines += [f"Worker group {_group(group)}." for group in template.worker_groups]
        lines += _conditions(template)
    else:
        has = _numbers(template)
        lines = [f"Cluster {template.name}: a Ray head on this machine with {has}, {warm}."]
    return [*lines, f"A stopped run has {template.stop_wait_s:g} s to save its checkpoint."]


def _numbers(template: ClusterTemplate) -> str:
    cpus = "all CPUs" if template.num_cpus is None else f"{template.num_cpus} CPU(s)"
    gpus = "all GPUs" if template.num_gpus is None else f"{template.num_gpus} GPU(s)"
    return f"{cpus} and {gpus}"


def _where(template: KubeRayTemplate) -> str:
    contexts = " or ".join(template.contexts) or "the current context"
    return f"{contexts}, namespace {template.namespace}" if template.namespace else contexts


def _group(group: WorkerGroup) -> str:
    """`h100: 2 pods, at most 4, each with 191 CPUs, 1722Gi and 8 GPU(s) on a3-highgpu-8g`."""
    pods = f"{group.replicas} pod(s)"
    most = f", at most {group.highest}" if group.highest != group.replicas else ""
    gpus = f" and {group.pod_gpus} GPU(s)" if group.pod_gpus else ""
    host = f" on {group.host_type}" if group.host_type else ""
    spot = ", on spot machines" if group.spot else ""
    return (
        f"{group.name}: {pods}{most}, each with {group.pod_cpus} CPU(s), {group.pod_memory}{gpus}"
        f"{host}{spot}"
    )


def _conditions(template: KubeRayTemplate) -> list[str]:
    lines = []
    if template.queue:
        lines.append(f"Kueue starts it when queue {template.queue} has enough quota.")
    idle = template.idle
    if idle.suspend_after_s is not None:
        lines.append(f"Suspended after {_time(idle.suspend_after_s)} without work.")
    if idle.time_to_live_s is not None:
        ends = "deleted" if idle.at_end == "delete" else "suspended"
        after = _time(idle.time_to_live_s)
        lines.append(f"Always {ends} {after} after its start, even while runs are active.")
    return lines


def _time(seconds: float) -> str:
    for unit, size in (("day(s)", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size and seconds % size == 0:
            return f"{seconds / size:g} {unit}"
    return f"{seconds:g} s"
