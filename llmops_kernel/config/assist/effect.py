"""Describe in a few lines what a valid training config does."""

from __future__ import annotations

from llmops_kernel.config.counted import counted
from llmops_kernel.config.models.describe import compact
from llmops_kernel.config.models.train import TrainingConfig


def training_effect(config: TrainingConfig) -> list[str]:
    """Describe what is trained on what, the batch size, and for how long."""
    model, training = config.model, config.training
    restarts = f"; {counted(training.max_failures, 'restart')} after a lost worker"
    precision = "" if model.dtype == "auto" else f" in {model.dtype}"
    return [
        f"Trains {model.id}{precision} on {config.data.train_words}: {config.method.describe()}.",
        f"Global batch size {batch_words(config)}.",
        f"{_length(config)}, {config.parallelism.strategy}, learning rate "
        f"{compact(config.optimizer.learning_rate)} ({config.optimizer.lr_scheduler_type})"
        f"{restarts if training.max_failures else ''}.",
    ]


def batch_words(config: TrainingConfig) -> str:
    """`16 = 4 sequences x 2 workers x 2 accumulation steps`."""
    micro, workers = config.training.micro_batch_size, config.parallelism.num_workers
    total, passes = config.training.global_batch_size, config.gradient_accumulation_steps
    parts = ((micro, "sequence"), (workers, "worker"), (passes, "accumulation step"))
    return f"{total} = " + " x ".join(counted(number, noun) for number, noun in parts)


def training_facts(config: TrainingConfig) -> dict[str, str]:
    """Return what `llmops check` prints of a training config, by label."""
    return {
        "model": config.model.id,
        "data": config.data.train_words,
        "method": f"{config.method.type}, {config.parallelism.strategy}",
        "global batch size": batch_words(config),
        "performance": f"{config.performance.describe()}, attention {config.model.attention}",
    }


def _length(config: TrainingConfig) -> str:
    training = config.training
    if training.max_steps is not None:
        return counted(training.max_steps, "step")
    return counted(training.num_epochs, "epoch")
