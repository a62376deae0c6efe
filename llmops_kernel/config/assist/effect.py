"""Describe in a few lines what a valid training config does."""

from __future__ import annotations

from llmops_kernel.config.models.describe import compact
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
        "performance": f"{config.performance.describe()}, attention {config.model.attention}",
    }


def _length(config: TrainingConfig) -> str:
    training = config.training
    if training.max_steps is not None:
        return f"{training.max_steps} step(s)"
    return f"{training.num_epochs:g} epoch(s)"
