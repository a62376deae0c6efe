"""How a model is trained, as far as memory, time and money depend on it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from llmops_kernel.metrics.lora import LoraAdapters, adapter_rank, lora_adapters
from llmops_kernel.metrics.shapes import Linear
from llmops_kernel.planner.activations import BFLOAT16, FLOAT32, Attention, Batch, Numbers
from llmops_kernel.planner.architecture import Architecture

Strategy = Literal["ddp", "fsdp", "zero1", "zero2", "zero3"]


@dataclass(frozen=True, kw_only=True)
class Lora:
    """Adapters beside frozen weights."""

    r: int
    target_modules: str | Sequence[str] = "all-linear"
    dropout: float = 0.0
    dora: bool = False
    bits: int | None = None
    """Bits of a frozen weight (`qlora`); None: the number format of the model."""
    double_quant: bool = True


@dataclass(frozen=True, kw_only=True)
class Setup:
    """One training. Lengths are in tokens, sizes of batches in sequences."""

    architecture: Architecture
    lora: Lora | None = None
    dtype: Literal["float32", "bfloat16"] = "bfloat16"
    strategy: Strategy = "ddp"
    num_workers: int = 1
    workers_per_node: int = 1
    offload_optimizer: bool = False
    offload_params: bool = False
    checkpointing: bool = False
    replaces_linear: bool = False
    """Linear layers save their input after their product, so that checkpointing repeats it too."""
    attention: Attention = "sdpa"
    optimizer: Literal["adamw", "adamw_8bit", "adafactor", "muon"] = "adamw"
    micro_batch_size: int = 4
    gradient_accumulation_steps: int = 1
    length: int = 512
    """Longest sequence, for which memory is planned."""
    mean_length: float | None = None
    """Mean length of a sequence, for time; None: as long as the longest."""
    padded_length: float | None = None
    """Mean width of a micro batch, which is what is computed; None: the mean length."""
    is_padded: bool = True
    sequences: int = 1
    """Sequences of a row: a pair has two."""
    has_head: bool = True
    """The model ends in logits of tokens."""
    outputs: int = 1
    """Numbers that another head than that of tokens gives."""
    logits: Literal["labels", "all", "fused"] = "all"
    label_share: float = 1.0
    """Share of the tokens with a label, 0..1."""
    references: int = 0
    """Forward passes without gradients beside each of the trained one."""
    on_gpu: bool = True
    bucket: int = 500_000_000
    """DeepSpeed's `reduce_bucket_size` in numbers."""
    max_live: int = 1_000_000_000
    """DeepSpeed's `stage3_max_live_parameters` in numbers."""

    @property
    def is_zero(self) -> bool:
        return self.strategy.startswith("zero")

    @property
    def shards(self) -> frozenset[str]:
        """Return what each worker has only a share of."""
        parts = ("optimizer", "gradients", "weights")
        count = {"ddp": 0, "zero1": 1, "zero2": 2, "zero3": 3, "fsdp": 3}[self.strategy]
        return frozenset(parts[:count])

    def share(self, part: str) -> float:
        """Return the share of a part that one worker has, 0..1."""
        return 1 / self.num_workers if part in self.shards else 1.0

    @cached_property
    def batch(self) -> Batch:
        return Batch(
            sequences=self.micro_batch_size * self.sequences,
            length=self.length,
            is_padded=self.is_padded,
        )

    @cached_property
    def numbers(self) -> Numbers:
        """Return the number formats of the forward pass.

        In bfloat16, weights that are trained stay float32 under autocast, but for DeepSpeed, which
        keeps its own copy of them, and FSDP, which computes with gathered bfloat16 ones.
        """
        is_half, lora = self.dtype == "bfloat16", self.lora
        compute = BFLOAT16 if is_half else FLOAT32
        autocast = is_half and not self.is_zero
        copies = autocast and self.strategy != "fsdp"
        full_copies = copies and lora is None
        of_qlora = lora is not None and lora.bits is not None
        return Numbers(
            compute=compute,
            residual=FLOAT32 if full_copies or of_qlora else compute,
            casts=full_copies,
            trains_base=lora is None,
            adapter_copies=copies and lora is not None,
            dropout=lora is not None and lora.dropout > 0,
            dropout_mask=1 if self.on_gpu else FLOAT32 if autocast else compute,
        )

    @cached_property
    def adapters(self) -> LoraAdapters | None:
        if self.lora is None:
            return None
        return lora_adapters(
            self.architecture.shape, r=self.lora.r, target_modules=self.lora.target_modules
        )

    @cached_property
    def _adapted(self) -> frozenset[str]:
        return frozenset() if self.adapters is None else frozenset(self.adapters.modules)

    def rank(self, linear: Linear, layer: int) -> int:
        """Return the rank of the adapter of a linear layer; 0 where it has none."""
        name = f"{self.architecture.shape.layer_path}.{layer}.{linear.name}"
        if self.lora is None or name not in self._adapted:
            return 0
        return adapter_rank(linear, r=self.lora.r)

    @property
    def base_params(self) -> int:
        """Return the weights of the model without adapters."""
        architecture = self.architecture
        if self.has_head:
            return architecture.params
        head = self.outputs * architecture.hidden
        return architecture.params - architecture.head_params + head

    @property
    def adapter_params(self) -> int:
        if self.adapters is None or self.lora is None:
            return 0
        magnitudes = 0
        if self.lora.dora:
            layers = enumerate(self.architecture.layers)
            magnitudes = sum(
                linear.out_features * linear.copies
                for index, layer in layers
                for linear in layer.linears
                if self.rank(linear, index)
            )
        return self.adapters.params + magnitudes

    @property
    def trained_params(self) -> int:
        return self.base_params if self.lora is None else self.adapter_params
