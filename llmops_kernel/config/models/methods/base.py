"""What all methods of training have: a name, a sentence, and how the model is prepared."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final, Literal

from llmops_kernel.config.models.choice import Choice, Variants


class MethodConfig(Choice):
    """How the weights are trained. Each method is a subclass in a file of this folder."""

    shorthand = "type"
    variants: ClassVar[Variants[MethodConfig]] = Variants(default="lora")
    apply: ClassVar[str] = ""
    """`module:function` on the workers: `(model, config) -> model`, with what is trained marked."""
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
