"""Full fine-tuning: every weight is trained."""

from __future__ import annotations

from typing import Literal

from llmops_kernel.config.models.methods.base import METHODS, MethodConfig


@METHODS.add
class FullMethod(MethodConfig):
    variant_name = "full"
    summary = "trains every weight"
    apply = "llmops_kernel.train.methods.full:prepare"

    type: Literal["full"] = "full"

    def describe(self) -> str:
        return "full fine-tuning, every weight"
