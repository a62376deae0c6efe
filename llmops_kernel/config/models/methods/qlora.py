"""QLoRA: adapters are trained beside frozen weights of 4 bits."""

from __future__ import annotations

from typing import Literal

from llmops_kernel.config.models.methods.adapters import AdapterMethod
from llmops_kernel.config.models.methods.base import METHODS


@METHODS.add
class QloraMethod(AdapterMethod):
    variant_name = "qlora"
    summary = "trains low-rank adapters beside frozen weights of 4 bits"
    apply = "llmops_kernel.train.methods.qlora:prepare"
    load = "llmops_kernel.train.methods.qlora:loading"
    needs = ("bitsandbytes",)

    type: Literal["qlora"] = "qlora"
    bnb_4bit_quant_type: Literal["nf4", "fp4"] = "nf4"
    """Data type of the 4-bit weights. `nf4` suits weights with a normal distribution, `fp4` is a 4-bit float."""
    bnb_4bit_use_double_quant: bool = True
    """Also quantise the scales of the 4-bit weights: saves about 0.4 bits a weight."""

    def describe(self) -> str:
        return f"QLoRA ({self.bnb_4bit_quant_type}), {self.adapter_words()}"
