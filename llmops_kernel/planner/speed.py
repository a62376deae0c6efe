"""Time of a training step: what is computed, moved and sent, over what the devices can do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from llmops_kernel.metrics.flops import forward_flops, mfu, training_flops
from llmops_kernel.planner.activations import FLOAT32
from llmops_kernel.planner.memory import written_bytes
from llmops_kernel.planner.setup import Setup

EFFICIENCY: Final = 0.5
"""Share of the peak that matrix products and attention reach together: an assumption. Published
runs on A100 reach 0.53 - 0.68, on H100 0.36 - 0.47 (READMEs of fms-fsdp and llm-foundry)."""
_MOVED_BY_ADAM: Final = 28
"""Bytes of a weight that AdamW reads and writes: weight, gradient and both states in float32."""
_PCIE: Final = 25e9
_HOST_ADAM: Final = 1.5e9
"""Weights a second that DeepSpeed's CPU Adam updates on one node: an assumption."""


@dataclass(frozen=True, kw_only=True)
class Rates:
    """What the devices of a training can do."""

    peak_flops: float | None
    """Dense FLOP per second of one device at the number format that is computed in; None only where
    time is learned."""
    memory_per_second: float | None = None
    """Bytes a second of the device's memory."""
    within_node: float = 200e9
    """Bytes a second that one device sends to others of its node."""
    between_nodes: float = 12.5e9
    """Bytes a second that a whole node sends to other nodes."""
    efficiency: float = EFFICIENCY


@dataclass(frozen=True, kw_only=True)
class Speed:
    """Seconds of one optimizer step, and what follows from them."""

    step_s: float
    compute_s: float
    communication_s: float
    """That does not fit behind the backward pass."""
    optimizer_s: float
    tokens: float
    """Of one step, of all workers, without padding."""
    required_flops: float
    """Of one step, of all workers (`mfu`)."""
    executed_flops: float
    mfu: float | None
    """None where the peak is not known."""

    @property
    def tokens_per_second(self) -> float:
        return self.tokens / self.step_s


@dataclass(frozen=True, kw_only=True)
class Work:
    """What one worker does in one optimizer step: the numbers that time is learned from."""

    executed_flops: float
    moved_bytes: float
    """That operations other than matrix products read and write, and weights that products read."""
    logit_bytes: float
    """Of these, logits: too large for any cache, and often for memory that is used again."""
    operations: float
    """Calls of PyTorch's operations: each costs a launch, or time of Python on CPUs."""
    updated_weights: float
    """By this worker's share of the optimizer."""
    sent_bytes: float


_COMPUTING: Final = ("executed_flops", "moved_bytes", "logit_bytes", "operations")


def work(setup: Setup) -> Work:
    """Return the work of a step whose sequences are all of the mean length."""
    sequences, passes = setup.micro_batch_size * setup.sequences, setup.gradient_accumulation_steps
    width = setup.padded_length or setup.mean_length or setup.length
    _, executed = _flops(setup, sequences * width, sequences * width**2)
    forward_passes = 1 + setup.references + (1 if setup.checkpointing else 0)
    written, logits = written_bytes(replace(setup, length=max(1, round(width))))
    weights = setup.architecture.params * setup.numbers.compute
    gradients = 2 * setup.trained_params * FLOAT32
    # The backward pass reads what was kept and writes its gradient.
    moved = (written + weights) * (forward_passes + 2) + gradients
    gathered, reduced = _sent(setup)
    return Work(
        executed_flops=passes * executed,
        moved_bytes=passes * moved,
        logit_bytes=passes * logits * (3 + setup.references),
        operations=passes * _operations(setup) * (forward_passes + 2) + _of_optimizer(setup),
        updated_weights=setup.trained_params * setup.share("optimizer"),
        sent_bytes=2 * passes * gathered + reduced,
    )


def speed(setup: Setup, rates: Rates, learned: Mapping[str, float] | None = None) -> Speed:
    """Return the time of a step whose sequences are all of the mean length.

    `learned`: seconds of the step by kind of `Work`; without it each part is assumed. On GPUs what
    is seen of communication is always assumed.
    """
    length = setup.mean_length or setup.length
    sequences = setup.micro_batch_size * setup.sequences
    passes = setup.gradient_accumulation_steps
    width = setup.padded_length or length
    tokens = sequences * length
    required, _ = _flops(setup, tokens, sequences * length**2)
    _, executed = _flops(setup, sequences * width, sequences * width**2)
    peak = rates.peak_flops
    if learned is None:
        assert peak is not None
        compute_s = passes * executed / (peak * rates.efficiency)
        optimizer_s = _optimizer(setup, rates)
    else:
        compute_s = sum(learned[kind] for kind in _COMPUTING)
        optimizer_s = learned["updated_weights"]
    if learned is None or setup.on_gpu:
        communication_s = _exposed(setup, rates, pass_s=compute_s / passes)
    else:
        communication_s = learned["sent_bytes"]
    step_s = compute_s + communication_s + optimizer_s
    workers = setup.num_workers
    return Speed(
        step_s=step_s,
        compute_s=compute_s,
        communication_s=communication_s,
        optimizer_s=optimizer_s,
        tokens=passes * tokens * workers,
        required_flops=required * passes * workers,
        executed_flops=executed * passes * workers,
        mfu=mfu(flops=required * passes, time_s=step_s, peak_flops=peak),
    )


def _flops(setup: Setup, tokens: float, squares: float) -> tuple[float, float]:
    """Return what a micro batch requires, and what it executes with what is computed again."""
    shape = setup.architecture.shape
    adapters = setup.adapters
    active = adapters.active_params if adapters is not None else 0

    def forward(adapter_params: int, *, causal: bool) -> float:
        return forward_flops(
            shape,
            tokens=round(tokens),
            sum_squared_lengths=squares,
            adapter_params=adapter_params,
            causal=causal,
        )

    def training(*, causal: bool) -> float:
        return training_flops(
            shape,
            tokens=round(tokens),
            sum_squared_lengths=squares,
            method="full" if setup.lora is None else "lora",
            adapters=adapters,
            causal=causal,
        )

    head = 2.0 * shape.lm_head.active_params * tokens
    left_out = 1.0 if not setup.has_head else 0.0
    if setup.has_head and setup.logits == "labels":
        left_out = 1.0 - setup.label_share
    backward_of_head = 2 if setup.lora is None else 1
    without = left_out * head * (1 + backward_of_head)

    def references(*, causal: bool) -> float:  # With their adapters turned off.
        return setup.references * (forward(0, causal=causal) - left_out * head)

    required = training(causal=True) - without + references(causal=True)
    skips = setup.attention == "flash" or (setup.attention == "sdpa" and not setup.is_padded)
    executed = training(causal=skips) - without + references(causal=skips)
    if setup.checkpointing:
        executed += forward(active, causal=skips) - head - 2.0 * _not_again(setup) * tokens
    return required, executed


def _not_again(setup: Setup) -> float:
    """Return weights that checkpointing does not multiply with again.

    PyTorch computes a layer again up to the last tensor that its backward pass reads. Where the
    layer ends with a frozen or a trained product and a sum, the product's result is not among them.
    ZeRO-3's linear layers save what they have read after their product.
    """
    if setup.replaces_linear:
        return 0.0
    traits = setup.architecture.traits
    if traits.norms != 2 or traits.norm == "layer" or traits.head_norms == "whole":
        return 0.0  # A norm or dropout comes after it.
    return float(
        sum(
            linear.in_features * linear.out_features
            for index, layer in enumerate(setup.architecture.layers)
            for linear in layer.linears
            if linear.name == "mlp.down_proj" and not setup.rank(linear, index)
        )
    )


def _exposed(setup: Setup, rates: Rates, *, pass_s: float) -> float:
    """Return seconds of communication of a step that do not fit behind the computation.

    Rings: each worker sends what is reduced once to be summed and once to be spread, less one
    share (ZeRO, arXiv 1910.02054). ZeRO-3 and FSDP gather the weights in each forward and each
    backward pass instead of spreading them. What is sent is taken to overlap wholly with its pass.
    """
    workers, passes = setup.num_workers, setup.gradient_accumulation_steps
    if workers == 1:
        return 0.0
    bandwidth = rates.within_node
    if workers > setup.workers_per_node:
        bandwidth = min(bandwidth, rates.between_nodes / setup.workers_per_node)
    gathered, reduced = _sent(setup)
    gathered_s, reduced_s = gathered / bandwidth, reduced / bandwidth
    forward_s, backward_s = pass_s / 3, pass_s * 2 / 3
    if "weights" not in setup.shards:
        return max(0.0, reduced_s - backward_s)
    each_s = max(0.0, gathered_s - forward_s) + max(0.0, gathered_s - backward_s)
    last_s = max(0.0, gathered_s + reduced_s - backward_s) - max(0.0, gathered_s - backward_s)
    return passes * each_s + last_s


def _sent(setup: Setup) -> tuple[float, float]:
    """Return bytes that a worker sends to gather all weights once, and to reduce the gradients."""
    part = (setup.num_workers - 1) / setup.num_workers
    size = FLOAT32 if setup.strategy == "ddp" else setup.numbers.compute
    reduced = setup.trained_params * size * part
    if "weights" not in setup.shards:
        return 0.0, 2 * reduced
    return setup.base_params * setup.numbers.compute * part, reduced


_OF_LAYER: Final = 24
"""Operations of a decoder layer besides its products and norms: rotary positions, attention,
activation, residual sums."""
_OF_NORM: Final = {"rms": 6, "rms32": 8, "layer": 1}
_OF_ADAPTER: Final = 5
_OF_UPDATE: Final = 16
"""Operations of AdamW, clipping and clearing for one tensor."""
_OF_STEP: Final = 500
"""What a step of Transformers' Trainer does besides, and its log."""


def _operations(setup: Setup) -> float:
    """Return calls of a forward pass, about."""
    traits, total = setup.architecture.traits, 0
    norms = traits.norms + (2 if traits.head_norms else 0)
    for index, layer in enumerate(setup.architecture.layers):
        total += _OF_LAYER + norms * _OF_NORM[traits.norm]
        for linear in layer.linears:
            adapter = _OF_ADAPTER + setup.numbers.dropout if setup.rank(linear, index) else 0
            total += 1 + adapter
    return float(total)


def _of_optimizer(setup: Setup) -> float:
    """Return calls of the optimizer's step: for each tensor where it does not fuse them."""
    if setup.on_gpu:
        return float(_OF_STEP)
    tensors = 0
    for index, layer in enumerate(setup.architecture.layers):
        for linear in layer.linears:
            if setup.lora is None:
                tensors += 1
            elif setup.rank(linear, index):
                tensors += 2
    return float(_OF_STEP + _OF_UPDATE * tensors)


def _optimizer(setup: Setup, rates: Rates) -> float:
    """Return seconds of the optimizer's step on its share of the weights."""
    trained = setup.trained_params * setup.share("optimizer")
    if setup.offload_optimizer and setup.on_gpu:
        workers = min(setup.workers_per_node, setup.num_workers)
        moved = 2 * trained * setup.numbers.compute / _PCIE
        return trained * workers / _HOST_ADAM + moved
    if rates.memory_per_second is None:
        return 0.0
    return update_seconds(trained, rates.memory_per_second)


_CPU_UPDATES: Final = 1.3e8
"""Weights a second that AdamW updates on a thread of a CPU: measured on two cores with AVX-512."""


def update_seconds(weights: float, memory_per_second: float | None) -> float:
    """Return seconds of AdamW's update of weights where they are; None: the memory of a CPU."""
    if memory_per_second is None:
        return weights / _CPU_UPDATES
    return weights * _MOVED_BY_ADAM / (0.8 * memory_per_second)
