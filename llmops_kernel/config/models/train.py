"""The training config: one file that fully describes a training run."""

from __future__ import annotations

from llmops_kernel.config.models.rules import advice, broken_rules
from llmops_kernel.config.models.section import Broken
from llmops_kernel.config.models.train_fields import TrainingFields
from llmops_kernel.config.names import ACCEPTED


class TrainingConfig(TrainingFields):
    """Everything a training run needs; the same file gives the same run."""

    aliases = ACCEPTED

    def broken_rules(self) -> list[Broken]:
        return broken_rules(self)

    def advice(self) -> list[Broken]:
        return advice(self)
