"""LoRA: low-rank adapters are trained beside frozen weights."""

from __future__ import annotations

import re
from typing import Literal

from pydantic import Field, field_validator

from llmops_kernel.config.models.methods.base import METHODS, MethodConfig


@METHODS.add
class LoraMethod(MethodConfig):
    variant_name = "lora"
    summary = "trains low-rank adapters beside frozen weights"
    apply = "llmops_kernel.train.methods.lora:prepare"
    saves = "adapter"

    type: Literal["lora"] = "lora"
    r: int = Field(default=16, ge=1)
    """LoRA rank."""
    lora_alpha: int = Field(default=32, ge=1)
    """LoRA scale: the update is multiplied by `lora_alpha / r`."""
    lora_dropout: float = Field(default=0.0, ge=0, lt=1)
    """Dropout on the adapter's input, 0..1."""
    target_modules: str | tuple[str, ...] = "all-linear"
    """Layers that get an adapter: `all-linear`, or names such as `[q_proj, v_proj]`."""

    @field_validator("target_modules")
    @classmethod
    def _no_list_in_a_text(cls, value: str | tuple[str, ...]) -> str | tuple[str, ...]:
        if isinstance(value, str) and re.fullmatch(r"\w+(\s*,\s*\w+)+", value):
            names = ", ".join(re.split(r"[,\s]+", value))
            raise ValueError(f"is one text that names several layers; write the list [{names}]")
        return value

    def describe(self) -> str:
        targets = self.target_modules
        layers = targets if isinstance(targets, str) else ", ".join(targets)
        return f"LoRA, rank {self.r}, alpha {self.lora_alpha}, on {layers}"
