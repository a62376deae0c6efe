"""Converts a Llama model from a GGUF file to Transformers' own format, in a few seconds.

Transformers reads such a file three times and builds its table of tensor names once a tensor; that
takes half a minute for a model of 135 M parameters. Names, key permutation and config fields follow
llama.cpp's `convert_hf_to_gguf.py`; a test compares the result with Transformers' own.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from safetensors.torch import save_file

_INTEGERS = {
    "llama.block_count": "num_hidden_layers",
    "llama.context_length": "max_position_embeddings",
    "llama.embedding_length": "hidden_size",
    "llama.feed_forward_length": "intermediate_size",
    "llama.attention.head_count": "num_attention_heads",
    "llama.attention.head_count_kv": "num_key_value_heads",
    "llama.vocab_size": "vocab_size",
    "tokenizer.ggml.bos_token_id": "bos_token_id",
    "tokenizer.ggml.eos_token_id": "eos_token_id",
    "tokenizer.ggml.padding_token_id": "pad_token_id",
}
_OUTPUT = "output.weight"
_OUTSIDE_LAYERS = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    _OUTPUT: "lm_head.weight",
}
_IN_LAYERS = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def convert_llama(path: Path, folder: Path) -> None:
    """Write a GGUF file's model as Transformers saves it: bfloat16 safetensors and its config.

    Without Transformers: importing its model classes would take longer than the conversion.
    Raises KeyError for another architecture or a tensor without a known name.
    """
    reader = gguf.GGUFReader(str(path))
    config = _config(reader)
    state = {
        _name(tensor.name): torch.from_numpy(_weights(tensor, config)).to(torch.bfloat16)
        for tensor in reader.tensors
    }
    folder.mkdir(parents=True, exist_ok=True)
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    _write_json(folder / "config.json", config)
    ids = {name: value for name, value in config.items() if name.endswith("_token_id")}
    _write_json(folder / "generation_config.json", ids)


def _write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2, sort_keys=True) + "\n")


def _config(reader: gguf.GGUFReader) -> dict[str, Any]:
    """Return what Transformers' `config.json` of this model says."""
    if _field(reader, "general.architecture") != "llama":
        raise KeyError(f"not a llama model: {_field(reader, 'general.architecture')}")
    integers = {ours: _field(reader, theirs) for theirs, ours in _INTEGERS.items()}
    return {
        **{name: int(value) for name, value in integers.items()},
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "dtype": "bfloat16",
        "hidden_act": "silu",
        "rms_norm_eps": float(_field(reader, "llama.attention.layer_norm_rms_epsilon")),
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": float(_field(reader, "llama.rope.freq_base")),
        },
        "tie_word_embeddings": all(tensor.name != _OUTPUT for tensor in reader.tensors),
    }


def _field(reader: gguf.GGUFReader, name: str) -> Any:
    field = reader.get_field(name)
    if field is None:
        raise KeyError(f"the GGUF file has no field {name!r}")
    return field.contents()


def _name(gguf_name: str) -> str:
    """Return `model.layers.3.self_attn.q_proj.weight` for `blk.3.attn_q.weight`."""
    if gguf_name in _OUTSIDE_LAYERS:
        return _OUTSIDE_LAYERS[gguf_name]
    _, layer, part, parameter = gguf_name.split(".")
    return f"model.layers.{layer}.{_IN_LAYERS[part]}.{parameter}"


def _weights(tensor: gguf.ReaderTensor, config: dict[str, Any]) -> np.ndarray[Any, Any]:
    values = gguf.dequantize(tensor.data, tensor.tensor_type).astype(np.float32, copy=False)
    if tensor.name.endswith("attn_q.weight"):
        values = _rotary_order(values, config["num_attention_heads"])
    elif tensor.name.endswith("attn_k.weight"):
        values = _rotary_order(values, config["num_key_value_heads"])
    return np.array(values)  # A copy that torch may write to and that needs no open file.


def _rotary_order(values: np.ndarray[Any, Any], num_heads: int) -> np.ndarray[Any, Any]:
    """Reorder weights: llama.cpp rotates pairs of neighbours, Transformers the halves of a head."""
    pairs = values.reshape(num_heads, -1, 2, values.shape[-1])
    return pairs.swapaxes(1, 2).reshape(values.shape)
