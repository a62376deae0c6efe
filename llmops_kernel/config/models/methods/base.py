"""What all methods of training have: a name, a sentence, and how the model is prepared."""

from __future__ import annotations

from typing import ClassVar, Final, Literal

from llmops_kernel.config.models.choice import Choice, Variants


class MethodConfig(Choice):
    """How the weights are trained. Each method is a subclass in a file of this folder."""

    shorthand = "type"
    variants: ClassVar[Variants[MethodConfig]] = Variants(default="lora")
    apply: ClassVar[str] = ""
    """`module:function` on the workers: `(model, config) -> model`, with what is trained marked."""
    saves: ClassVar[Literal["model", "adapter"]] = "model"
    """What the output is: all weights, or an adapter beside the weights of the base model."""

    type: str = "lora"

    def describe(self) -> str:
        """Return a few words for `llmops check`, such as `LoRA, rank 16`."""
        return f"{self.variant_name}, which {self.summary}"


METHODS: Final = MethodConfig.variants
"""All methods by name."""
