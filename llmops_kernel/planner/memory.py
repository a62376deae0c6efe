"""Memory of a training on one device, by what it is for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Final

from llmops_kernel.planner.activations import (
    BFLOAT16,
    FLOAT32,
    LayerMemory,
    layer_memory,
    norm,
)
from llmops_kernel.planner.setup import Setup

_BLOCK_4BIT: Final = 64
"""Weights that share a scale in 4 bits, and scales that share one of their own (bitsandbytes)."""
_BLOCK_SCALES: Final = 256
_BLOCK_8BIT: Final = 256
_SUB_GROUP: Final = 1e9
"""Weights that ZeRO-3 updates at once (DeepSpeed's `sub_group_size`)."""
CONTEXT_BYTES: Final = 1_000_000_000
"""A CUDA context with PyTorch's and cuBLAS' own buffers: an assumption, by no means measured."""
NCCL_BYTES: Final = 500_000_000
"""Communicators of several workers: an assumption."""
FRAGMENTATION: Final = 0.05
"""Share of what lives for a step that the allocator loses: an assumption (3 - 8 % are reported)."""


@dataclass(frozen=True, kw_only=True)
class Memory:
    """Bytes on one device at the moment that needs most; `host` is of one node."""

    weights: float = 0.0
    gradients: float = 0.0
    optimizer: float = 0.0
    activations: float = 0.0
    logits: float = 0.0
    buffers: float = 0.0
    """Of communication: buckets, gathered weights."""
    overhead: float = 0.0
    """Context of the device and fragmentation."""
    host: float = 0.0
    moment: str = ""
    """When that is: `loss`, `backward` or `step`."""

    @property
    def total(self) -> float:
        """Return all bytes of the device."""
        return sum(float(getattr(self, name)) for name in PARTS)


PARTS: Final = tuple(field.name for field in fields(Memory) if field.name not in ("host", "moment"))


def memory(setup: Setup) -> Memory:
    """Return the most memory that one device needs, in the second step or later.

    States of the optimizer exist from the first step on, so that the second needs more. Gradients
    are freed after each step and stay between the micro batches of one.
    """
    largest = max(_moments(setup), key=lambda one: one.total)
    overhead = 0.0
    if setup.on_gpu:
        moving = largest.activations + largest.logits + largest.gradients
        overhead = CONTEXT_BYTES + FRAGMENTATION * moving
        overhead += NCCL_BYTES if setup.num_workers > 1 else 0
    return replace(largest, overhead=overhead, host=host_bytes(setup))


def _moments(setup: Setup) -> Iterator[Memory]:
    states = _states(setup)
    layers = [_of_layer(setup, index) for index in range(len(setup.architecture.layers))]
    # Checkpointing keeps the input of a layer alone, and computes the rest again.
    input_ = float(setup.batch.tokens * setup.architecture.hidden * setup.numbers.residual)
    keeps = [input_ if setup.checkpointing else layer.kept for layer in layers]
    whole = gradient_bytes(setup)
    # DeepSpeed's ZeRO-3 has a buffer for its share of the gradients from the start.
    stays = setup.gradient_accumulation_steps > 1 or setup.strategy == "zero3"
    before = whole if stays else 0.0
    kept, copies = sum(keeps), sum(one.copies for one in layers)
    head = _head(setup)
    forward = kept + copies + head.kept
    end = states
    if not setup.on_gpu and setup.strategy in ("zero1", "zero2") and not before:
        # A host's memory is taken when it is written to: DeepSpeed's bucket as gradients come.
        states = replace(states, buffers=0.0)
    yield replace(
        states, gradients=before, activations=forward, logits=head.forward, moment="forward"
    )
    if setup.checkpointing:  # What autocast has copied ends with the forward pass.
        forward -= copies
    yield replace(states, gradients=before, activations=forward, logits=head.loss, moment="loss")
    # From the last layer to the first: activations go, gradients come.
    made_apart = _made_apart(setup)
    grown, left = head.gradient, forward - head.kept
    for number in reversed(range(len(layers))):
        layer = layers[number]
        again = layer.kept + layer.copies if setup.checkpointing else 0.0
        grown += _layer_gradients(setup, number)
        yield replace(
            states,
            gradients=max(grown, before + made_apart),
            activations=left + again + layer.backward,
            moment="backward",
        )
        left -= keeps[number] + (0.0 if setup.checkpointing else layer.copies)
    yield replace(end, gradients=whole + _embedding_gradient(setup), moment="backward")
    yield replace(end, gradients=whole, optimizer=end.optimizer + _step(setup), moment="step")


def written_bytes(setup: Setup) -> tuple[float, float]:
    """Return bytes of activations that a forward pass writes, and of logits and their softmax.

    About what autograd keeps where all weights are trained: that is written once, read once by the
    next operation, and read again by the backward pass. An adapter adds its inputs where they are
    dropped out, and the sum of two outputs.
    """
    whole = replace(setup, lora=None)
    layers = sum(_of_layer(whole, index).kept for index in range(len(setup.architecture.layers)))
    head, adapters = _head(whole), 0
    for index, layer in enumerate(setup.architecture.layers):
        for linear in layer.linears:
            if setup.rank(linear, index):
                dropped = 2 * linear.in_features if setup.numbers.dropout else 0
                adapters += (dropped + 2 * linear.out_features) * linear.active
    of_adapters = float(adapters * setup.numbers.compute * setup.batch.tokens)
    return layers + head.kept + of_adapters, head.forward


# --- States: what lives for the whole training (ZeRO, arXiv 1910.02054) ---


def _states(setup: Setup) -> Memory:
    optimizer = optimizer_bytes(setup)
    leaves = setup.offload_optimizer or (setup.strategy == "fsdp" and setup.offload_params)
    return Memory(
        weights=0.0 if setup.offload_params else weight_bytes(setup),
        optimizer=0.0 if leaves and setup.on_gpu else optimizer,
        buffers=_buffers(setup),
    )


def weight_bytes(setup: Setup) -> float:
    """Return bytes of the weights that one worker keeps, adapters and buffers included."""
    base, adapters = float(setup.base_params), float(setup.adapter_params)
    lora, is_half = setup.lora, setup.dtype == "bfloat16"
    stored = BFLOAT16 if is_half and (setup.is_zero or lora is not None) else FLOAT32
    of_adapter = BFLOAT16 if is_half and setup.is_zero else FLOAT32
    if lora is not None and lora.bits is not None:
        quantised = float(setup.architecture.linear_params)
        scale = FLOAT32 / _BLOCK_4BIT
        if lora.double_quant:
            scale = (1 + FLOAT32 / _BLOCK_SCALES) / _BLOCK_4BIT
        # The rest is float32, as in the paper's code (`prepare_model_for_kbit_training`).
        of_base = quantised * (lora.bits / 8 + scale) + (base - quantised) * FLOAT32
    else:
        of_base = base * stored
    return (of_base + adapters * of_adapter) * setup.share("weights")


def optimizer_bytes(setup: Setup) -> float:
    """Return bytes of the optimizer's states of one worker, with DeepSpeed's copy of weights."""
    trained = float(setup.trained_params)
    copy = FLOAT32 if setup.is_zero else 0
    if setup.optimizer == "adamw":
        states = 2 * FLOAT32 * trained
    elif setup.optimizer == "adamw_8bit":
        states = trained * 2 * (1 + FLOAT32 / _BLOCK_8BIT)
    elif setup.optimizer == "adafactor":
        states = FLOAT32 * float(sum(a + b for a, b in _matrices(setup)))
    else:
        matrices = float(sum(a * b for a, b in _matrices(setup)))
        states = FLOAT32 * matrices + 2 * FLOAT32 * (trained - matrices)
    return (states + copy * trained) * setup.share("optimizer")


def _matrices(setup: Setup) -> Iterator[tuple[int, int]]:
    """Yield the sizes of the trained matrices of the layers."""
    for index, layer in enumerate(setup.architecture.layers):
        for linear in layer.linears:
            for _ in range(linear.copies):
                if setup.lora is None:
                    yield linear.in_features, linear.out_features
                elif rank := setup.rank(linear, index):
                    yield linear.in_features, rank
                    yield rank, linear.out_features


def gradient_bytes(setup: Setup) -> float:
    """Return bytes of all gradients of one worker, once the backward pass has ended."""
    if setup.offload_optimizer and setup.on_gpu and setup.strategy != "zero1":
        return 0.0
    return setup.trained_params * _gradient_size(setup) * setup.share("gradients")


def _gradient_size(setup: Setup) -> int:
    return BFLOAT16 if setup.dtype == "bfloat16" and setup.is_zero else FLOAT32


def _buffers(setup: Setup) -> float:
    """Return bytes of communication: DDP's buckets, DeepSpeed's, and gathered weights."""
    architecture, several = setup.architecture, setup.num_workers > 1
    compute = setup.numbers.compute
    if setup.strategy == "ddp":
        return setup.trained_params * float(_gradient_size(setup)) if several else 0.0
    largest = max(architecture.layer_params(layer) for layer in architecture.layers)
    if setup.strategy == "fsdp":
        # The outermost group stays gathered, of the layers this one and the next.
        root = architecture.embedding_params + architecture.head_params
        return float(compute * (root + 2 * largest) + compute * 2 * largest)
    bucket = (
        setup.bucket * compute
        if setup.on_gpu
        else min(setup.bucket, setup.trained_params) * compute
    )
    if setup.strategy != "zero3":
        return float(bucket)
    live = min(setup.base_params, setup.max_live + largest)
    return float(bucket + live * compute)


def host_bytes(setup: Setup) -> float:
    """Return bytes of host memory of one node for what is offloaded, with pinned buffers."""
    if not setup.on_gpu:
        return 0.0
    workers, parts = min(setup.workers_per_node, setup.num_workers), 0.0
    if setup.strategy == "fsdp" and setup.offload_params:
        parts = weight_bytes(setup) + gradient_bytes(setup) + optimizer_bytes(setup)
    else:
        if setup.offload_optimizer:
            # States, and gradients in float32 for the step on the host.
            trained = setup.trained_params * setup.share("optimizer")
            parts += optimizer_bytes(setup) + FLOAT32 * trained
        if setup.offload_params:
            parts += weight_bytes(setup)
    return parts * workers


# --- What a step makes and frees ---


def _of_layer(setup: Setup, index: int) -> LayerMemory:
    return layer_memory(
        setup.architecture,
        setup.architecture.layers[index],
        setup.batch,
        setup.numbers,
        attention=setup.attention,
        rank=lambda linear: setup.rank(linear, index),
    )


@dataclass(frozen=True)
class _Head:
    """Bytes of what comes after the last layer."""

    kept: float
    forward: float = 0.0
    """Logits at the end of the forward pass."""
    loss: float = 0.0
    """Logits and their gradients, or that of the head's weight, at the begin of the backward."""
    gradient: float = 0.0
    """Of the head's weight."""


def _head(setup: Setup) -> _Head:
    architecture, numbers, batch = setup.architecture, setup.numbers, setup.batch
    trained = numbers.trains_base
    kept = batch.tokens * norm(
        architecture.hidden, numbers.residual, is_trained=trained, kind=architecture.traits.norm
    )
    if not setup.has_head:
        return _Head(kept)
    labelled = batch.tokens * (setup.label_share if setup.logits == "labels" else 1.0)
    logits = labelled * architecture.vocabulary
    if trained:
        kept += numbers.compute * architecture.hidden * labelled
    weight = float(architecture.hidden * architecture.vocabulary)
    if numbers.casts:
        kept += weight * numbers.compute
    gradient = weight * _gradient_size(setup) * setup.share("gradients") if trained else 0.0
    if setup.logits == "fused":
        return _Head(kept, loss=gradient, gradient=gradient)
    upcast = FLOAT32 if numbers.compute != FLOAT32 else 0
    later = numbers.compute * logits
    if trained:
        later += weight * (_gradient_size(setup) + (numbers.compute if numbers.casts else 0))
    # Log-softmax keeps float32; its backward pass and that of the loss hold one each besides.
    return _Head(
        kept,
        forward=(numbers.compute + upcast + FLOAT32) * logits,
        loss=max(3 * FLOAT32 * logits, later),
        gradient=gradient,
    )


def _layer_gradients(setup: Setup, index: int) -> float:
    """Return bytes of one layer's gradients on one worker."""
    layer, size = setup.architecture.layers[index], _gradient_size(setup)
    if setup.lora is None:
        count = float(setup.architecture.layer_params(layer))
    else:
        count = float(
            sum(
                setup.rank(one, index) * (one.in_features + one.out_features) * one.copies
                for one in layer.linears
            )
        )
    if setup.offload_optimizer and setup.on_gpu and setup.strategy != "zero1":
        return 0.0
    return count * size * setup.share("gradients")


def _made_apart(setup: Setup) -> float:
    """Return bytes of gradients before they are added to those of earlier micro batches."""
    if setup.lora is not None:
        return 0.0
    size = _gradient_size(setup)
    largest = max(
        one.in_features * one.out_features * one.copies
        for layer in setup.architecture.layers
        for one in layer.linears
    )
    tied = setup.architecture.embedding_params if _is_tied(setup) else 0
    return float(size * (largest + tied))


def _is_tied(setup: Setup) -> bool:
    return setup.architecture.is_tied and setup.has_head


def _embedding_gradient(setup: Setup) -> float:
    """Return bytes of the embedding's gradient before it is added.

    A tied weight has two, which PyTorch adds first, out of place.
    """
    if setup.lora is not None:
        return 0.0
    pieces = (2 if _is_tied(setup) else 0) + (setup.gradient_accumulation_steps > 1)
    return float(pieces * setup.architecture.embedding_params * _gradient_size(setup))


def _step(setup: Setup) -> float:
    """Return bytes that the optimizer's step needs for itself; fused AdamW needs none."""
    if setup.is_zero and not setup.offload_optimizer:
        # A flat copy of the gradients in float32; of ZeRO-3 for each of its groups in turn.
        share = setup.trained_params * setup.share("optimizer")
        return FLOAT32 * (min(share, _SUB_GROUP) if setup.strategy == "zero3" else share)
    return 0.0
