"""Settings of a training that need less memory, one after the other, with the same global batch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import ValidationError

from llmops_kernel.config.models.parallelism import ZeroStrategy
from llmops_kernel.config.models.train import TrainingConfig

Changes = Mapping[str, Any]
"""Values by the path of their field: `{"training.micro_batch_size": 2}`."""


def next_setting(
    config: TrainingConfig, *, on_gpu: bool, in_evaluation: bool = False
) -> dict[str, Any] | None:
    """Return the next changes to try after a config ran out of memory; None: there are none left.

    Half the micro batch first (the largest size up to half that divides the rows of a worker's
    step), then gradient checkpointing, then optimizer states in host memory, where the strategy can
    and the device is not that memory itself. An evaluation's own micro batch comes before all that,
    if memory ran out there. Each step sees the same rows as before.

    A step of one micro batch that is divided keeps its gradients between the two: where those are
    larger than half of the activations, it takes the setting after it to need less.
    """
    for changes in _candidates(config, on_gpu=on_gpu, in_evaluation=in_evaluation):
        try:
            changed(config, changes)
        except ValidationError:  # A rule refuses it, such as that of kto for micro batches.
            continue
        return changes
    return None


def changed(config: TrainingConfig, changes: Changes) -> TrainingConfig:
    """Return the config with changes. Raises ValidationError if its rules refuse them."""
    values = config.model_dump(mode="json")
    for path, value in changes.items():
        *sections, name = path.split(".")
        section = values
        for each in sections:
            section = section[each]
        section[name] = value
    return TrainingConfig.model_validate(values)


def describe_changes(config: TrainingConfig, changes: Changes) -> str:
    """Return `micro_batch_size=2 (was 4, global batch kept)` for changes of this config."""
    words = []
    for path, value in changes.items():
        before: Any = config
        for name in path.split("."):
            before = getattr(before, name)
        kept = ", global batch kept" if path == _MICRO else ""
        was = f" (was {before}{kept})" if type(before) is int else ""
        words.append(f"{path.removeprefix('training.')}={str(value).lower()}{was}")
    return ", ".join(words)


_MICRO = "training.micro_batch_size"


def micro_batch_sizes(config: TrainingConfig) -> list[int]:
    """Return the micro batches that a worker's rows of a step can be divided into, in order."""
    return divisors(config.training.global_batch_size // config.parallelism.num_workers)


def divisors(rows: int) -> list[int]:
    """Return the sizes into which rows can be divided evenly, in ascending order."""
    return [size for size in range(1, rows + 1) if rows % size == 0]


def _candidates(
    config: TrainingConfig, *, on_gpu: bool, in_evaluation: bool
) -> Iterator[dict[str, Any]]:
    parallelism, objective = config.parallelism, config.objective
    micro = config.micro_batch_size
    if not objective.shares_batch:
        evaluated = config.evaluation.micro_batch_size or micro
        if in_evaluation and evaluated > 1:
            yield {"evaluation.micro_batch_size": evaluated // 2}
        # Without its last rows, an epoch has another number of steps for each micro batch.
        if micro > 1 and not config.training_arguments.get("dataloader_drop_last"):
            yield {_MICRO: max(size for size in micro_batch_sizes(config) if size <= micro // 2)}
    elif hasattr(objective, "mini_batch_size"):
        # A row has two texts or more. The rows of a micro batch are each other's negatives.
        texts = objective.mini_batch_size or 2 * micro
        if texts > 1:
            yield {"objective.mini_batch_size": texts // 2}
    if not parallelism.gradient_checkpointing:
        yield {"parallelism.gradient_checkpointing": True}
    if on_gpu and isinstance(parallelism, ZeroStrategy) and not parallelism.offload_optimizer:
        yield {"parallelism.offload_optimizer": "cpu"}
