"""Full fine-tuning: the model is trained as it was loaded."""

from __future__ import annotations

from typing import Any

from llmops_kernel.config.models.train import TrainingConfig


def prepare(model: Any, _config: TrainingConfig) -> Any:
    """Return the model; every weight is trained."""
    return model
