"""What makes a run faster without changing what it learns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import field_validator

from llmops_kernel.config.models.section import Section

Auto = bool | Literal["auto"]


class PerformanceConfig(Section):
    shorthand = "mode"
    removed: ClassVar[Mapping[str, str]] = {
        "logits": "delete it; performance.mode=off computes the logits of all tokens",
        "matmul": "delete it; PyTorch chooses the library of matrix products",
    }

    mode: Literal["auto", "off"] = "auto"
    """What the fields below that are `auto` do: `auto` chooses what is safe on the device, with losses that differ by rounding only, such as logits at tokens that the loss counts and nowhere else; `off` trains as a plain Transformers Trainer does. The run's journal states what was chosen and why."""
    group_by_length: Auto = "auto"
    """Put rows of like length into one micro batch, which needs less padding. Each optimizer step still sees the same rows. `auto`: if there are several micro batches in a step."""
    padding_free: bool = False
    """Join the rows of a micro batch into one sequence without padding; attention stays inside each row. Saves time with flash attention; not needed with `data.packing`."""
    fused_loss: bool = False
    """Compute output layer and loss in one kernel of `liger-kernel`, without storing the logits. Needs a GPU and the package's extra `kernels`."""
    compile: bool = False
    """Compile the model with `torch.compile`. The first step then takes minutes."""
    tf32: bool = False
    """Compute float32 products of GPUs (Ampere and later) in TF32, which has fewer digits."""

    @field_validator("mode", mode="before")
    @classmethod
    def _yaml_off(cls, value: Any) -> Any:
        """YAML reads `off` as false."""
        return "off" if value is False else value

    @property
    def automatic(self) -> bool:
        return self.mode == "auto"

    def describe(self) -> str:
        """Return a few words for `llmops check`: the mode, and what differs from it."""
        own = [
            f"{name}={str(value).lower()}"
            for name, value in self.model_dump(exclude={"mode"}).items()
            if value not in ("auto", False)
        ]
        return ", ".join([self.mode, *own])
