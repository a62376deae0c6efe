"""FLOPs that training a language model requires, by its config: the numerator of MFU.

The training loop counts the loaded modules instead (`metrics/model_work.py`); this serves where
only a config can be read, and for the first step of a model that was not counted yet.

A product of a token with a weight is 2 FLOPs. A trained weight takes part in three
(forward, input gradient, weight gradient), a frozen one in the first two:

    full   6 N tokens            + 3 x attention
    LoRA   (4 N + 6 A) tokens    + 3 x attention    minus what nothing trained needs

N: `ModelShape.matmul_params`; A: adapter weights; of experts only the active ones.
Attention forward is two products of 2 x width x pairs each, in every layer; the pairs of a
causal sequence of length L are L^2 / 2 (Megatron-LM), so that packed and padded batches
compare, and MFU stays below 1.

Never counted: recomputation (gradient checkpointing; that is HFU), padding, the optimizer,
norms, softmax, biases, embedding look-ups.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import Literal

from llmops_kernel.metrics.lora import LoraAdapters as LoraAdapters
from llmops_kernel.metrics.lora import lora_adapters as lora_adapters
from llmops_kernel.metrics.shapes import ModelShape as ModelShape


def forward_flops(
    shape: ModelShape,
    *,
    tokens: int,
    sum_squared_lengths: float,
    adapter_params: int = 0,
    causal: bool = True,
) -> float:
    """Return FLOPs of one forward pass over `tokens` real tokens, in all sequences together.

    `sum_squared_lengths`: sum of L^2 over the sequences (each packed document counts separately).
    """
    weights = 2.0 * (shape.matmul_params + adapter_params) * tokens
    windows = Counter(layer.window for layer in shape.layers)
    return weights + sum(
        2 * count * _product(shape, tokens, sum_squared_lengths, window, causal=causal)
        for window, count in windows.items()
    )


def training_flops(
    shape: ModelShape,
    *,
    tokens: int,
    sum_squared_lengths: float,
    method: Literal["full", "lora"] = "full",
    adapters: LoraAdapters | None = None,
    adapter_params: int = 0,
    causal: bool = True,
) -> float:
    """Return required model FLOPs of the forward and backward pass over `tokens` real tokens.

    For `lora` (also QLoRA: dequantising is overhead, not model work) give `adapters` from
    `lora_adapters()`: exact. With only `adapter_params`, the rounder 4N + 6A is returned,
    which credits input gradients below the first adapter that nobody needs: 0.3 % of a
    Llama-2-7B, but a few per cent of a model of two layers.
    """
    forward = partial(
        forward_flops,
        shape,
        tokens=tokens,
        sum_squared_lengths=sum_squared_lengths,
        causal=causal,
    )
    if method == "full":
        return 3 * forward()
    if adapters is None:
        # All but the frozen weights' own gradients.
        return 3 * forward(adapter_params=adapter_params) - 2.0 * shape.matmul_params * tokens
    return (
        forward(adapter_params=adapters.active_params)
        + 2.0 * adapters.backward_params * tokens
        + sum(
            count * _product(shape, tokens, sum_squared_lengths, window, causal=causal)
            for window, count in adapters.attention_products
        )
    )


def palm_flops(shape: ModelShape, *, tokens: int, sum_squared_lengths: float) -> float:
    """Return FLOPs as published tables count them: 6N, full-square attention, all weights trained.

    PaLM, appendix B (arxiv.org/abs/2204.02311); torchtitan and TRL agree within 2 %. Only
    for comparison with such tables: it credits work that a causal kernel or LoRA does not do.
    """
    return training_flops(
        shape, tokens=tokens, sum_squared_lengths=sum_squared_lengths, causal=False
    )


def _product(
    shape: ModelShape, tokens: int, sum_squared_lengths: float, window: int | None, *, causal: bool
) -> float:
    """Return FLOPs of one query-by-key product of one layer, all sequences together."""
    count = pairs(tokens, sum_squared_lengths, window) if causal else sum_squared_lengths
    return 2.0 * shape.attention_width * count


def pairs(tokens: float, sum_squared_lengths: float, window: int | None) -> float:
    """Return pairs of a token with itself or an earlier one inside the window.

    A sequence longer than the window w has w L - w^2 / 2 pairs. The two sums do not contain the
    individual lengths, so L is their token-weighted mean: exact while no sequence is longer than
    the window or all are equally long, else slightly too many (the function is concave).
    """
    if window is None or not tokens or sum_squared_lengths <= window * tokens:
        return sum_squared_lengths / 2
    return window * tokens - window**2 * tokens**2 / (2 * sum_squared_lengths)


# --- Model FLOPs utilization (PaLM, appendix B: arxiv.org/abs/2204.02311) ---


REJECTED_PEAK = "unknown: a step was faster than the peak"
"""Source of a peak that the run itself proved wrong; no MFU of that run is shown."""


def mfu(
    *, flops: float | None, time_s: float, peak_flops: float | None, num_workers: int = 1
) -> float | None:
    """Return required FLOPs over what the hardware could have done in that time; 1 is the peak.

    `flops`: of all workers together (`metrics.flops`). `time_s`: wall clock, with waiting
    for data. `peak_flops`: dense FLOP per second of one worker's device at the compute
    dtype. None when the FLOPs, the peak or the time are unknown. A value above 1 proves that the
    peak is wrong (float32 work done in TF32, a peak measured on a busy CPU): see `possible`.
    """
    if flops is None or peak_flops is None:
        return None
    available = peak_flops * time_s * num_workers
    return flops / available if available > 0 else None


def possible(mfu: float | None) -> float | None:
    """Return an MFU that can be true, or None: nothing computes faster than its peak."""
    return mfu if mfu is not None and 0.0 <= mfu <= 1.0 else None


def flops_per_second(*, flops: float | None, time_s: float) -> float | None:
    """Return the rate that is shown where the peak is unknown, for all workers together."""
    return flops / time_s if flops is not None and time_s > 0 else None
