"""The training config: one file that fully describes a training run."""

from __future__ import annotations

from typing import Any, Self

from pydantic import Field, field_validator, model_validator
from pydantic_core import PydanticCustomError

from llmops_kernel.config.rules import broken_rules
from llmops_kernel.config.sections import (
    NAME_PATTERN,
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

    name: str = Field(default="train", pattern=NAME_PATTERN)
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
    """Trackers, by Transformers' name: `tensorboard`, `mlflow`, `wandb`, `comet_ml`, `trackio`."""
    training_arguments: dict[str, Any] = Field(default_factory=dict)
    """Further Transformers `TrainingArguments`, by name, for what this file has no field for."""

    @property
    def gradient_accumulation_steps(self) -> int:
        """Micro batches behind one optimizer step on one worker."""
        per_pass = self.training.micro_batch_size * self.parallelism.num_workers
        return self.training.global_batch_size // per_pass

    @field_validator("report_to", mode="before")
    @classmethod
    def _one_tracker(cls, value: Any) -> Any:
        """`wandb` and `none` are common ways to write `[wandb]` and `[]`."""
        if value is None or value == "none":
            return ()
        return (value,) if isinstance(value, str) else value

    @model_validator(mode="after")
    def _check_rules(self) -> Self:
        if broken := broken_rules(self):
            text = "\n".join(map(str, broken))
            raise PydanticCustomError("rules", "{text}", {"text": text, "broken": broken})
        return self
