"""Models that can be written as GGUF: names, order of weights and settings of each.

Follows llama.cpp's `convert_hf_to_gguf.py`. What is not certain to be the same there is refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gguf
import numpy as np
import torch

from llmops_kernel.errors import ExportError

REMEDY = "export --to merged, then use convert_hf_to_gguf.py of llama.cpp on that folder"
_ROTARY = ("q_proj", "k_proj")


@dataclass(frozen=True)
class Architecture:
    """How llama.cpp calls a model, and whether it rotates pairs of neighbours."""

    arch: gguf.MODEL_ARCH
    interleaved: bool


_KNOWN = {
    "llama": Architecture(gguf.MODEL_ARCH.LLAMA, interleaved=True),
    "qwen2": Architecture(gguf.MODEL_ARCH.QWEN2, interleaved=False),
}


def architecture_of(config: Any) -> Architecture:
    """Return the architecture. Raises ExportError for one that cannot be written here."""
    found = _KNOWN.get(str(config.model_type))
    if found is None:
        raise ExportError(
            f"A {config.model_type} model cannot be written as GGUF here:"
            f" only {' and '.join(_KNOWN)} can.",
            remedy=REMEDY,
        )
    rope = _rope(config)
    if rope.get("rope_type", "default") != "default":
        raise ExportError(
            f"Rotary scaling of type {rope['rope_type']} cannot be written as GGUF here.",
            remedy=REMEDY,
        )
    if getattr(config, "use_sliding_window", False) or getattr(config, "mlp_bias", False):
        raise ExportError(
            "Sliding windows and biases in the MLP cannot be written as GGUF here.", remedy=REMEDY
        )
    return found


def add_settings(writer: gguf.GGUFWriter, config: Any, *, name: str) -> None:
    """Write the model's shape."""
    heads = config.num_attention_heads
    head_size = getattr(config, "head_dim", None) or config.hidden_size // heads
    writer.add_name(name)
    writer.add_vocab_size(config.vocab_size)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(float(_rope(config).get("rope_theta", 10_000.0)))
    writer.add_rope_dimension_count(head_size)
    if head_size * heads != config.hidden_size:
        writer.add_key_length(head_size)
        writer.add_value_length(head_size)


def _rope(config: Any) -> dict[str, Any]:
    return dict(getattr(config, "rope_parameters", None) or {})


class Names:
    """Returns llama.cpp's name of a weight, and its values in llama.cpp's order."""

    def __init__(self, config: Any, found: Architecture) -> None:
        self._config = config
        self._found = found
        self._map = gguf.get_tensor_name_map(found.arch, config.num_hidden_layers)

    def name(self, ours: str) -> str:
        """Raises ExportError for a weight that llama.cpp has no name for."""
        theirs = self._map.get_name(ours, try_suffixes=(".weight", ".bias"))
        if theirs is None:
            raise ExportError(f"llama.cpp has no name for the weight {ours}.", remedy=REMEDY)
        return theirs

    def values(self, ours: str, weight: torch.Tensor) -> np.ndarray[Any, Any]:
        """Return float32 values."""
        values = weight.detach().to(torch.float32).numpy()
        if self._found.interleaved and (part := self._rotary(ours)):
            heads = self._config.num_attention_heads
            count = heads if part == "q_proj" else self._config.num_key_value_heads
            values = _neighbours(values, count)
        return np.ascontiguousarray(values)

    def _rotary(self, ours: str) -> str:
        return next((part for part in _ROTARY if f".{part}." in ours), "")


def _neighbours(values: np.ndarray[Any, Any], num_heads: int) -> np.ndarray[Any, Any]:
    """Reorder rows: Transformers rotates the halves of a head, llama.cpp pairs of neighbours."""
    halves = values.reshape(num_heads, 2, -1, *values.shape[1:])
    return halves.swapaxes(1, 2).reshape(values.shape)
