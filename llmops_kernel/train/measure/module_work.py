"""Counts a model's products from its modules, and checks the count against PyTorch's."""

from __future__ import annotations

import inspect
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from llmops_kernel.metrics.model_work import AttentionWork, ModelWork, required_flops
from llmops_kernel.train.measure.twin import Recorder, Twin, Use, attention_modules, recording

TOLERANCE = 0.005
LENGTHS = (512, 2048)
"""Lengths of the sequences that both counts are made of; the longer shows enough attention."""


@dataclass(frozen=True)
class Count:
    work: ModelWork
    by_modules: float
    """FLOPs of a sequence by the modules, at the length where the counts differ most."""
    executed: float
    """FLOPs by PyTorch's FlopCounterMode."""

    @property
    def agrees(self) -> bool:
        return abs(self.by_modules - self.executed) <= TOLERANCE * self.executed


@dataclass(frozen=True)
class _Pass:
    """A forward and backward pass over a sequence."""

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
    kept_work = _work(uses, [work for work, _ in attention], head)
    weighted = _work(
        [_times(twin, use) for use in uses],
        [
            work
            for work, windows in attention
            for work in (replace(work, window=w) for w in windows)
        ],
        head,
    )
    if checkpointing:
        weighted = _with_recomputation(twin, weighted, (short, long))
    by_modules, executed = _worst(kept_work, uses, short, long)
    return Count(weighted, by_modules, executed)


def _run(model: nn.Module, length: int) -> _Pass:
    from torch.utils.flop_counter import FlopCounterMode

    tokens = torch.zeros(1, length, dtype=torch.int64, device="meta")
    with FlopCounterMode(display=False) as counter, recording(model) as recorder:
        output: Any = model(input_ids=tokens, **_mask(model, tokens))
        logits = getattr(output, "logits", None)
        if logits is None:  # A model without a head, or one that returns a plain tensor.
            logits = getattr(output, "last_hidden_state", output)
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
    per_token = []
    for use in long.recorder.uses:
        rows = use.rows - before.get((use.path, calls[use.path]), 0.0)
        calls[use.path] += 1
        per_token.append(replace(use, rows=rows / (long.length - short.length)))
    return per_token


def _times(twin: Twin, use: Use) -> Use:
    """Return the use with the rows of all layers that its own stands for."""
    if not use.path.startswith(f"{twin.layer_path}."):
        return use
    index = int(use.path[len(twin.layer_path) + 1 :].partition(".")[0])
    return replace(use, rows=use.rows * len(twin.represents[index]))


def _head_path(model: Any) -> str | None:
    find = getattr(model, "get_output_embeddings", None)
    try:
        head = find() if find is not None else None
    except (AttributeError, NotImplementedError):
        head = None  # A model without a head.
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
        adapters=sum(use.weights * use.rows for use in uses if ".lora_" in use.path),
    )


def _worst(kept_work: ModelWork, uses: list[Use], short: _Pass, long: _Pass) -> tuple[float, float]:
    """Return both counts where they differ most.

    With work that is done once a pass (DoRA's norms) what counts is their growth with the length.
    """
    unseen = 2.0 * sum((use.weights + use.backward) * use.rows for use in uses if not use.executed)
    by_modules = [
        required_flops(
            kept_work, tokens=pass_.length, sum_squared_lengths=pass_.length**2, causal=False
        )
        - unseen * pass_.length
        for pass_ in (short, long)
    ]
    pairs = [(by_modules[0], short.executed), (by_modules[1], long.executed)]
    if any(use.rows == 0 for use in uses):
        pairs = [(by_modules[1] - by_modules[0], long.executed - short.executed)]
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
    before = [pass_.executed + _other_layers_flops(twin, pass_) for pass_ in plain]
    enable({"use_reentrant": False})
    again = [_run(twin.module, pass_.length) for pass_ in plain]
    after = [pass_.executed + _other_layers_flops(twin, pass_) for pass_ in again]
    added = [with_it - without for with_it, without in zip(after, before, strict=True)]
    short, long = (pass_.length for pass_ in plain)
    by_pair = (added[1] / long - added[0] / short) / (long - short)
    by_token = added[0] / short - by_pair * short
    pairs = 2.0 * sum(pass_.forward for pass_ in weighted.attention)
    return replace(
        weighted,
        recomputed=by_token / 2,
        recomputed_attention=by_pair / pairs if pairs else 0.0,
    )


def _other_layers_flops(twin: Twin, pass_: _Pass) -> float:
    """Return what the layers would execute that the twin has not: of each kind one more is run."""
    flops = 0.0
    for index, alike in enumerate(twin.represents):
        if len(alike) > 1:
            layers: Any = twin.module.get_submodule(twin.layer_path)
            layers.insert(index, layers[index])
            added = _run(twin.module, pass_.length).executed - pass_.executed
            del layers[index]
            flops += (len(alike) - 1) * added
    return flops


# --- Widths, windows and gradients of each layer's attention ---


_HEADS = ("num_heads", "num_attention_heads", "n_heads", "n_head")
_SIZES = ("head_dim", "head_size", "attention_head_size")
_SEPARATE = ("q_proj", "k_proj", "v_proj")
Windows = tuple[int | None, ...]


class UncountableError(Exception):
    """The modules do not tell what the model computes."""


def attention_work(twin: Twin, recorder: Recorder) -> list[tuple[AttentionWork, Windows]]:
    """Return the attention of each kept layer, with the windows of all that it stands for."""
    if not twin.layer_path:
        raise UncountableError("no list of layers with attention was found")
    config = _text_config(twin.module)
    work = []
    layers: Any = twin.module.get_submodule(twin.layer_path)
    for layer, indices in zip(enumerate(layers), twin.represents, strict=True):
        index, module = layer
        windows = tuple(_window(config, number) for number in indices)
        for path, attention in attention_modules(module).items():
            full_path = f"{twin.layer_path}.{index}.{path}"
            work.append((_layer_attention(attention, config, full_path, recorder), windows))
    return work


def _text_config(model: Any) -> Any:
    config = getattr(model, "config", None)
    if config is None:
        raise UncountableError("the model has no config")
    return config.get_text_config() if hasattr(config, "get_text_config") else config


def _layer_attention(
    module: nn.Module, config: Any, path: str, recorder: Recorder
) -> AttentionWork:
    keys, values = _widths(module, config)
    by_keys, by_values = _gradients(path, recorder)
    return AttentionWork(None, keys, values, key_gradients=by_keys, value_gradients=by_values)


def _widths(module: Any, config: Any) -> tuple[int, int]:
    """Return heads times size, of queries and keys, and of values.

    The module's own numbers come first, since layers may differ. Latent attention (DeepSeek) has
    keys and values of different sizes.
    """
    heads = _first_number((module, config), _HEADS)
    latent = getattr(config, "qk_nope_head_dim", None)
    if latent is not None and getattr(config, "v_head_dim", None):
        return heads * (latent + config.qk_rope_head_dim), heads * config.v_head_dim
    size = _first_number((module, config), _SIZES, default=config.hidden_size // heads)
    return heads * size, heads * size


def _first_number(places: tuple[Any, ...], names: tuple[str, ...], default: int = 0) -> int:
    for place in places:
        for name in names:
            value = getattr(place, name, None)
            if isinstance(value, int) and value > 0:
                return value
    if not default:
        raise UncountableError(f"neither the module nor the config has {' or '.join(names)}")
    return default


def _gradients(path: str, recorder: Recorder) -> tuple[int, int]:
    """Return the products of the backward pass, for keys' and for values' width.

    Gradients of queries and keys need that of the probabilities, which has the values' width.
    """
    inside = [use for use in recorder.uses if use.path.startswith(f"{path}.")]
    if not inside:
        raise UncountableError(f"{path} multiplies nothing")
    flags = [recorder.needs_gradient.get(f"{path}.{name}") for name in _SEPARATE]
    if None not in flags:
        queries, keys, values = (bool(flag) for flag in flags)
        return queries + keys, (queries or keys) + values
    # The last layer of attention reads its result.
    last = _part(path, inside[-1].path)
    reads = next(use for use in inside if _part(path, use.path) == last)
    return (2, 2) if reads.input_gradient else (0, 0)


def _part(path: str, inner: str) -> str:
    return inner[len(path) + 1 :].partition(".")[0]


def _window(config: Any, index: int) -> int | None:
    """Return the sliding window of a layer in tokens; None looks at the whole sequence."""
    window: int | None = getattr(config, "sliding_window", None) or None
    kinds = getattr(config, "layer_types", None)
    if kinds is not None:
        if kinds[index] not in ("full_attention", "sliding_attention"):
            raise UncountableError(f"a layer is of the kind {kinds[index]!r}")
        return window if kinds[index] == "sliding_attention" else None
    local = getattr(config, "attention_layers", None)
    if local is not None:
        return getattr(config, "window_size", None) if local[index] == "local" else None
    return window if getattr(config, "use_sliding_window", True) else None
