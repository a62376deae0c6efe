"""Counts a model's products from its modules, and checks the count against PyTorch's."""

from __future__ import annotations

import inspect
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from llmops_kernel.metrics.model_work import ModelWork, required_flops
from llmops_kernel.train.measure.attention import attention_work
from llmops_kernel.train.measure.twin import Twin
from llmops_kernel.train.measure.uses import Recorder, Use, recording

TOLERANCE = 0.005
LENGTHS = (512, 2048)
"""Of the sequences that both counts are made of; the longer one has enough attention to see it."""


@dataclass(frozen=True)
class Count:
    work: ModelWork
    counted: float
    """FLOPs of a sequence by the modules, at the length where the counts differ most."""
    executed: float
    """The same by PyTorch's FlopCounterMode."""

    @property
    def agrees(self) -> bool:
        return abs(self.counted - self.executed) <= TOLERANCE * self.executed


@dataclass(frozen=True)
class _Pass:
    """One forward and backward pass over a sequence."""

    length: int
    recorder: Recorder
    executed: float


def count_work(twin: Twin, *, checkpointing: bool = False) -> Count:
    """Count the work of the model that `twin` stands for.

    Raises UncountableError, and what the model's own code raises on `meta`.
    """
    short, long = (_run(twin.module, length) for length in LENGTHS)
    uses = _per_token(short, long)
    attention = attention_work(twin, long.recorder)
    head = _head_path(twin.module)
    own = _work(uses, [one for one, _ in attention], head)
    weighted = _work(
        [_times(twin, use) for use in uses],
        [one for one, windows in attention for one in (replace(one, window=w) for w in windows)],
        head,
    )
    if checkpointing:
        weighted = _with_recomputation(twin, weighted, (short, long))
    counted, executed = _worst(own, uses, short, long)
    return Count(weighted, counted, executed)


def _run(model: nn.Module, length: int) -> _Pass:
    from torch.utils.flop_counter import FlopCounterMode

    tokens = torch.zeros(1, length, dtype=torch.int64, device="meta")
    with FlopCounterMode(display=False) as counter, recording(model) as recorder:
        output: Any = model(input_ids=tokens, **_mask(model, tokens))
        logits = getattr(output, "logits", output)
        logits.float().sum().backward()
    model.zero_grad(set_to_none=True)
    return _Pass(length, recorder, float(counter.get_total_flops()))


def _mask(model: Any, tokens: torch.Tensor) -> dict[str, torch.Tensor]:
    """Return a mask, without which Transformers looks at the positions' values for packed texts."""
    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    accepts = "attention_mask" in inspect.signature(base.forward).parameters
    return {"attention_mask": torch.ones_like(tokens)} if accepts else {}


def _per_token(short: _Pass, long: _Pass) -> list[Use]:
    """Return each use with its rows per token; what is done once a pass has none."""
    calls: Counter[str] = Counter()
    before = {}
    for use in short.recorder.uses:
        before[use.path, calls[use.path]] = use.rows
        calls[use.path] += 1
    calls.clear()
    found = []
    for use in long.recorder.uses:
        rows = use.rows - before.get((use.path, calls[use.path]), 0.0)
        calls[use.path] += 1
        found.append(replace(use, rows=rows / (long.length - short.length)))
    return found


def _times(twin: Twin, use: Use) -> Use:
    """Return the use with the rows of all layers that its own stands for."""
    if not use.path.startswith(f"{twin.layer_path}."):
        return use
    index = int(use.path[len(twin.layer_path) + 1 :].partition(".")[0])
    return replace(use, rows=use.rows * len(twin.represents[index]))


def _head_path(model: Any) -> str | None:
    find = getattr(model, "get_output_embeddings", None)
    head = find() if find is not None else None
    paths = [path for path, module in model.named_modules() if module is head]
    return paths[0] if paths else None


def _work(uses: list[Use], attention: list[Any], head: str | None) -> ModelWork:
    in_head = [
        head is not None and (use.path == head or use.path.startswith(f"{head}.")) for use in uses
    ]
    body = [use for use, is_head in zip(uses, in_head, strict=True) if not is_head]
    heads = [use for use, is_head in zip(uses, in_head, strict=True) if is_head]
    return ModelWork(
        forward=sum(use.weights * use.rows for use in body),
        backward=sum(use.backward * use.rows for use in body),
        head_forward=sum(use.weights * use.rows for use in heads),
        head_backward=sum(use.backward * use.rows for use in heads),
        attention=tuple(attention),
    )


def _worst(own: ModelWork, uses: list[Use], short: _Pass, long: _Pass) -> tuple[float, float]:
    """Return both counts where they differ most.

    With work that is done once a pass (DoRA's norms) what counts is their growth with the length.
    """
    unseen = 2.0 * sum((use.weights + use.backward) * use.rows for use in uses if not use.executed)
    counted = [
        required_flops(own, tokens=one.length, sum_squared_lengths=one.length**2, causal=False)
        - unseen * one.length
        for one in (short, long)
    ]
    pairs = [(counted[0], short.executed), (counted[1], long.executed)]
    if any(use.rows == 0 for use in uses):
        pairs = [(counted[1] - counted[0], long.executed - short.executed)]
    return max(pairs, key=lambda pair: abs(pair[0] - pair[1]) / max(pair[1], 1.0))


def _with_recomputation(twin: Twin, weighted: ModelWork, plain: tuple[_Pass, _Pass]) -> ModelWork:
    """Add what checkpointing makes a model compute: what the counter sees more of with it.

    PyTorch ends the repetition of a block early, so it is a little less than its forward pass. And
    checkpointing needs gradients of the first block's input, which LoRA does without: that is more
    once, not once a layer. So each kind of layer is counted by what one more of it adds.
    """
    enable = getattr(twin.module, "activation_checkpointing_enable", None)
    if enable is None:
        return weighted
    before = [one.executed + _of_the_rest(twin, one) for one in plain]
    enable({"use_reentrant": False})
    again = [_run(twin.module, one.length) for one in plain]
    after = [one.executed + _of_the_rest(twin, one) for one in again]
    more = [with_it - without for with_it, without in zip(after, before, strict=True)]
    short, long = (one.length for one in plain)
    by_pair = (more[1] / long - more[0] / short) / (long - short)
    by_token = more[0] / short - by_pair * short
    pairs = 2.0 * sum(one.forward for one in weighted.attention)
    return replace(
        weighted,
        recomputed=by_token / 2,
        recomputed_attention=by_pair / pairs if pairs else 0.0,
    )


def _of_the_rest(twin: Twin, known: _Pass) -> float:
    """Return what the layers would execute that the twin has not: of each kind one more is run."""
    found = 0.0
    for index, alike in enumerate(twin.represents):
        if len(alike) > 1:
            layers: Any = twin.module.get_submodule(twin.layer_path)
            layers.insert(index, layers[index])
            more = _run(twin.module, known.length).executed - known.executed
            del layers[index]
            found += (len(alike) - 1) * more
    return found
