"""What makes a run faster without changing what it learns."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import field_validator

from llmops_kernel.config.models.section import Section

Auto = bool | Literal["auto"]


class PerformanceConfig(Section):
    shorthand = "mode"

    mode: Literal["auto", "off"] = "auto"
    """What the fields below that are `auto` do: `auto` chooses what is safe on the device, with losses that differ by rounding only; `off` trains as a plain Transformers Trainer does. The run's journal states what was chosen and why."""
    logits: Literal["auto", "labels", "all"] = "auto"
    """Where logits are computed: `labels` at tokens that the loss counts, `all` at every token. For chats with `data.loss_on: answer`, most of the output layer's work and memory is spent on tokens that have no label. `auto` is `labels` where the model's code allows it."""
    matmul: Literal["auto", "torch", "onednn"] = "auto"
    """Library for float32 matrix products on CPUs: `torch` is PyTorch's own choice (Intel MKL), `onednn` uses AVX-512 on AMD processors too, where MKL does not. `auto` is `onednn` on such a processor."""
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
