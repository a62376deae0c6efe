"""The interface of a strategy on the workers; each is a module of this folder."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Protocol, cast

from llmops_kernel.config.models.train import TrainingConfig


class Strategy(Protocol):
    """A strategy. `ParallelismConfig.worker_side` names its module."""

    def arguments(self, config: TrainingConfig, *, use_gpu: bool) -> dict[str, Any]:
        """Return what TrainingArguments get for it."""

    def join(self, arguments: Any) -> None:
        """Pass the existing process group to the library that shards; before the model."""

    def describe_engine(self, trainer: Any) -> str:
        """Return what trains, as it is, such as `DeepSpeedEngine, ZeRO-2`."""

    def engine_problem(self, trainer: Any, config: TrainingConfig) -> str:
        """Return what differs from what the config asks for; empty: nothing."""

    def trained(self, trainer: Any) -> list[Any]:
        """Return the tensors that the optimizer updates."""

    def prepare_save(self, trainer: Any) -> None:
        """Let the Trainer gather whole weights when it saves the output. Called on all workers."""


def wrapped(trainer: Any) -> Any:
    """Return the engine, also where `torch.compile` has wrapped it once more."""
    return getattr(trainer.model_wrapped, "_orig_mod", trainer.model_wrapped)


def strategy(config: TrainingConfig) -> Strategy:
    """Return the module of the config's strategy; imports nothing of another one."""
    return cast("Strategy", import_module(config.parallelism.worker_side))
