"""Widths, windows and gradients of each layer's attention."""

from __future__ import annotations

from typing import Any

from torch import nn

from llmops_kernel.metrics.model_work import AttentionWork
from llmops_kernel.train.measure.twin import Twin, attention_modules
from llmops_kernel.train.measure.uses import Recorder

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
    found = []
    layers: Any = twin.module.get_submodule(twin.layer_path)
    for layer, indices in zip(enumerate(layers), twin.represents, strict=True):
        index, module = layer
        windows = tuple(_window(config, number) for number in indices)
        for path, attention in attention_modules(module).items():
            full_path = f"{twin.layer_path}.{index}.{path}"
            found.append((_of_layer(attention, config, full_path, recorder), windows))
    return found


def _text_config(model: Any) -> Any:
    config = getattr(model, "config", None)
    if config is None:
        raise UncountableError("the model has no config")
    return config.get_text_config() if hasattr(config, "get_text_config") else config


def _of_layer(module: nn.Module, config: Any, path: str, recorder: Recorder) -> AttentionWork:
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
