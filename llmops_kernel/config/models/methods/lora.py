"""LoRA: low-rank adapters are trained beside frozen weights."""

from __future__ import annotations

from typing import Literal

from llmops_kernel.config.models.methods.adapters import AdapterMethod
from llmops_kernel.config.models.methods.base import METHODS


@METHODS.add
class LoraMethod(AdapterMethod):
    variant_name = "lora"
    summary = "trains low-rank adapters beside frozen weights"
    apply = "llmops_kernel.train.methods.lora:prepare"

    type: Literal["lora"] = "lora"

    def describe(self) -> str:
        return f"LoRA, {self.adapter_words()}"
