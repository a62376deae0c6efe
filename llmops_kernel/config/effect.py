"""Says in a few lines what a valid config works out to."""

from __future__ import annotations

from llmops_kernel.config.cluster import ClusterTemplate
from llmops_kernel.config.describe import compact
from llmops_kernel.config.sections import MethodConfig
from llmops_kernel.config.train import TrainingConfig


def training_effect(config: TrainingConfig) -> list[str]:
    """What is trained on what, the batch, and how long; `llmops check` tells the same."""
    model, training = config.model, config.training
    return [
        f"Trains {model.id} in {model.dtype} on {config.data.train}: {_method(config.method)}.",
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


def _method(method: MethodConfig) -> str:
    if method.type == "full":
        return "full fine-tuning, every weight"
    targets = method.target_modules
    layers = targets if isinstance(targets, str) else ", ".join(targets)
    return f"LoRA, rank {method.r}, alpha {method.lora_alpha}, on {layers}"


def _length(config: TrainingConfig) -> str:
    training = config.training
    if training.max_steps is not None:
        return f"{training.max_steps} step(s)"
    return f"{training.num_epochs:g} epoch(s)"


def cluster_effect(template: ClusterTemplate) -> list[str]:
    """What `llmops up` starts."""
    cpus = "all CPUs" if template.num_cpus is None else f"{template.num_cpus} CPU(s)"
    gpus = "all GPUs" if template.num_gpus is None else f"{template.num_gpus} GPU(s)"
    warm = "with a fork server" if template.warm.enabled else "without a fork server"
    return [
        f"Cluster {template.name}: a Ray head on this machine with {cpus} and {gpus}, {warm}.",
        f"A stopped run has {template.stop_wait_s:g} s to save its checkpoint.",
    ]
