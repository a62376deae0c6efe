"""What all methods with low-rank adapters have: the fields of the adapters."""

from __future__ import annotations

import re

from pydantic import Field, field_validator

from llmops_kernel.config.models.methods.base import MethodConfig


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
