"""The training config: one file that fully describes a training run."""

from __future__ import annotations

from typing import Any

from pydantic import Field, SerializeAsAny, field_validator

from llmops_kernel.config.models.methods import LoraMethod, MethodConfig
from llmops_kernel.config.models.parallelism import DdpStrategy, ParallelismConfig
from llmops_kernel.config.models.rules import advice, broken_rules
from llmops_kernel.config.models.section import NAME_PATTERN, Broken, Packages, RunConfig
from llmops_kernel.config.models.sections import (
    CheckpointConfig,
    DataConfig,
    EvaluationConfig,
    HooksConfig,
    ModelConfig,
    OptimizerConfig,
    OutputConfig,
    PerformanceConfig,
    TrainingSection,
)
from llmops_kernel.config.names import ACCEPTED


class TrainingConfig(RunConfig):
    """Everything a training run needs; the same file gives the same run."""

    aliases = ACCEPTED

    name: str = Field(default="train", pattern=NAME_PATTERN)
    """Short name, the first part of each run id: lower-case letters, digits and dashes."""
    seed: int = Field(default=42, ge=0)
    """Seed of new weights, shuffling and dropout."""
    model: ModelConfig
    data: DataConfig
    method: SerializeAsAny[MethodConfig] = LoraMethod()
    parallelism: SerializeAsAny[ParallelismConfig] = DdpStrategy()
    optimizer: OptimizerConfig = OptimizerConfig()
    training: TrainingSection = TrainingSection()
    performance: PerformanceConfig = PerformanceConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()
    output: OutputConfig = OutputConfig()
    hooks: HooksConfig = HooksConfig()
    report_to: tuple[str, ...] = ()
    """Trackers, by Transformers' name: `tensorboard`, `mlflow`, `wandb`, `comet_ml`, `trackio`."""
    training_arguments: dict[str, Any] = Field(default_factory=dict)
    """Other `TrainingArguments` of Transformers by name, for what has no field in this file."""
    packages: Packages = ()
    """Packages that this run needs besides those of the cluster, as pip takes them: `trl==1.16`.
    Each node installs them once."""
    requirements: str | None = None
    """A requirements file with such packages, relative to the workspace."""

    @property
    def worker_processes(self) -> int:
        return self.parallelism.num_workers

    @property
    def model_id(self) -> str:
        return self.model.id

    @property
    def gradient_accumulation_steps(self) -> int:
        """Micro batches behind one optimizer step on one worker."""
        per_pass = self.training.micro_batch_size * self.parallelism.num_workers
        return self.training.global_batch_size // per_pass

    @property
    def warmup_steps(self) -> int:
        """`optimizer.warmup_steps`, limited so that the last step has the full rate."""
        wanted, steps = self.optimizer.warmup_steps, self.training.max_steps
        return wanted if steps is None else min(wanted, steps - 1)

    @field_validator("report_to", mode="before")
    @classmethod
    def _one_tracker(cls, value: Any) -> Any:
        """`wandb` and `none` are common ways to write `[wandb]` and `[]`."""
        if value is None or value == "none":
            return ()
        return (value,) if isinstance(value, str) else value

    def broken_rules(self) -> list[Broken]:
        return broken_rules(self)

    def advice(self) -> list[Broken]:
        return advice(self)
