"""The training config: one file that fully describes a training run."""

from __future__ import annotations

from typing import Any, Self

from pydantic import Field, model_validator

from llmops_kernel.config.sections import (
    CheckpointConfig,
    DataConfig,
    EvaluationConfig,
    HooksConfig,
    MethodConfig,
    ModelConfig,
    OptimizerConfig,
    OutputConfig,
    ParallelismConfig,
    Section,
    TrainingSection,
)


class TrainingConfig(Section):
    """Everything a training run needs; the same file gives the same run."""

    name: str = Field(default="train", pattern=r"^[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?$")
    """Short name, the first part of each run id: lower-case letters, digits and dashes."""
    seed: int = Field(default=42, ge=0)
    """Seeds weights, shuffling and dropout."""
    model: ModelConfig
    data: DataConfig
    method: MethodConfig = MethodConfig()
    parallelism: ParallelismConfig = ParallelismConfig()
    optimizer: OptimizerConfig = OptimizerConfig()
    training: TrainingSection = TrainingSection()
    evaluation: EvaluationConfig = EvaluationConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()
    output: OutputConfig = OutputConfig()
    hooks: HooksConfig = HooksConfig()
    report_to: tuple[str, ...] = ()
    """Trackers, as Transformers names them: `tensorboard`, `mlflow`, `wandb`, `comet_ml`, `trackio`."""
    training_arguments: dict[str, Any] = {}
    """Further Transformers `TrainingArguments`, by name, for what this file has no field for."""

    @property
    def gradient_accumulation_steps(self) -> int:
        """Micro batches behind one optimizer step on one worker."""
        per_pass = self.training.micro_batch_size * self.parallelism.num_workers
        return self.training.global_batch_size // per_pass

    @model_validator(mode="after")
    def _check_batch_sizes(self) -> Self:
        micro, workers = self.training.micro_batch_size, self.parallelism.num_workers
        total, per_pass = self.training.global_batch_size, micro * workers
        if total % per_pass:
            nearest = max(1, round(total / per_pass)) * per_pass
            raise ValueError(
                f"training.global_batch_size={total} is not a multiple of micro_batch_size={micro}"
                f" x num_workers={workers} = {per_pass}; try global_batch_size={nearest}"
            )
        return self
