"""The methods of training, each with its fields and what it needs of the workers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, ClassVar, Final, Literal

from pydantic import Field, field_validator

from llmops_kernel.config.models.fields import Choice, Variants


class MethodConfig(Choice):
    """How the weights are trained. Each method is a subclass."""

    shorthand = "type"
    variants: ClassVar[Variants[MethodConfig]] = Variants(default="lora")
    apply: ClassVar[str] = ""
    """`module:function` on the workers: `(model, config) -> model`, with what is trained marked.

    Of a method that saves an adapter it also takes `adapter`, the folder of one to continue.
    """
    load: ClassVar[str] = ""
    """`module:function` on the workers: `(config) -> keyword arguments of from_pretrained`."""
    saves: ClassVar[Literal["model", "adapter"]] = "model"
    """What the output is: all weights, or an adapter beside the weights of the base model."""

    needs: ClassVar[tuple[str, ...]] = ()
    """Packages that only this method needs; they are looked for before anything is started."""
    recorded_by_all: ClassVar[Mapping[str, Any]] = {
        "r": 16,
        "lora_alpha": 32,
        "lora_dropout": 0.0,
        "target_modules": "all-linear",
    }

    type: str = "lora"

    def describe(self) -> str:
        """Return a few words for `llmops check`, such as `LoRA, rank 16`."""
        return f"{self.variant_name}, which {self.summary}"


METHODS: Final = MethodConfig.variants
"""All methods by name."""


class AdapterMethod(MethodConfig):
    """A method that trains low-rank adapters beside frozen weights. Names are PEFT's own."""

    saves = "adapter"

    r: int = Field(default=16, ge=1)
    """LoRA rank."""
    lora_alpha: int = Field(default=32, ge=1)
    """LoRA scale: the update is multiplied by `lora_alpha / r`."""
    lora_dropout: float = Field(default=0.0, ge=0, lt=1)
    """Dropout on the adapter's input, 0..1."""
    target_modules: str | tuple[str, ...] = "all-linear"
    """Layers that get an adapter: `all-linear`, or names such as `[q_proj, v_proj]`."""
    use_rslora: bool = False
    """Rank-stabilised LoRA: the update is multiplied by `lora_alpha / sqrt(r)`, which suits high ranks."""
    use_dora: bool = False
    """DoRA: also train the magnitude of each row of the weights. Often better at low ranks, and slower."""

    @field_validator("target_modules")
    @classmethod
    def _no_list_in_a_text(cls, value: str | tuple[str, ...]) -> str | tuple[str, ...]:
        if isinstance(value, str) and re.fullmatch(r"\w+(\s*,\s*\w+)+", value):
            names = ", ".join(re.split(r"[,\s]+", value))
            raise ValueError(f"is one text that names several layers; write the list [{names}]")
        return value

    def adapter_words(self) -> str:
        """Return `rank 16, alpha 32, on all-linear`."""
        targets = self.target_modules
        layers = targets if isinstance(targets, str) else ", ".join(targets)
        kinds = {"rsLoRA": self.use_rslora, "DoRA": self.use_dora}
        added = "".join(f", {name}" for name, is_used in kinds.items() if is_used)
        return f"rank {self.r}, alpha {self.lora_alpha}, on {layers}{added}"


@METHODS.add
class FullMethod(MethodConfig):
    variant_name = "full"
    summary = "trains every weight"
    apply = "llmops_kernel.train.methods:prepare_full"

    type: Literal["full"] = "full"

    def describe(self) -> str:
        return "full fine-tuning, every weight"


@METHODS.add
class LoraMethod(AdapterMethod):
    variant_name = "lora"
    summary = "trains low-rank adapters beside frozen weights"
    apply = "llmops_kernel.train.methods:prepare_lora"

    type: Literal["lora"] = "lora"

    def describe(self) -> str:
        return f"LoRA, {self.adapter_words()}"


@METHODS.add
class QloraMethod(AdapterMethod):
    variant_name = "qlora"
    summary = "trains low-rank adapters beside frozen weights of 4 bits"
    apply = "llmops_kernel.train.methods:prepare_qlora"
    load = "llmops_kernel.train.methods:load_quantised"
    needs = ("bitsandbytes",)

    type: Literal["qlora"] = "qlora"
    bnb_4bit_quant_type: Literal["nf4", "fp4"] = "nf4"
    """Data type of the 4-bit weights. `nf4` suits weights with a normal distribution, `fp4` is a 4-bit float."""
    bnb_4bit_use_double_quant: bool = True
    """Also quantise the scales of the 4-bit weights: saves about 0.4 bits a weight."""

    def describe(self) -> str:
        return f"QLoRA ({self.bnb_4bit_quant_type}), {self.adapter_words()}"
