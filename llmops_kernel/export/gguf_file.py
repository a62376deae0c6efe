"""Writes GGUF files for llama.cpp, by the `gguf` package."""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch

from llmops_kernel.errors import ExportError
from llmops_kernel.export import card
from llmops_kernel.export.answers import answer_all, compare
from llmops_kernel.export.weights import Located, Merged, Progress, merge
from llmops_kernel.models.answer_ends import turn_end
from llmops_kernel.store.export_job import ExportJob, ExportLine

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


# --- The tokenizer of a GGUF file: a byte-level BPE as llama.cpp reads it ---


_QWEN2 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_LLAMA3 = _QWEN2.replace(r"|\p{N}|", r"|\p{N}{1,3}|")
_BY_PATTERN = {_QWEN2: "qwen2", _LLAMA3: "llama-bpe"}


def add_tokenizer(writer: gguf.GGUFWriter, tokenizer: Any, *, vocab_size: int) -> None:
    """Write tokens, merges, special ids and the chat template. Raises ExportError."""
    core = json.loads(tokenizer.backend_tokenizer.to_str())
    merges = _merges(core)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre_tokenizer(core))
    tokens, types = _tokens(tokenizer, vocab_size)
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_merges(merges)
    for add, number in (
        (writer.add_bos_token_id, tokenizer.bos_token_id),
        (writer.add_eos_token_id, tokenizer.eos_token_id),
        (writer.add_unk_token_id, tokenizer.unk_token_id),
        (writer.add_pad_token_id, tokenizer.pad_token_id),
        (writer.add_eot_token_id, _end_of_turn(tokenizer)),  # llama.cpp stops there as well.
    ):
        if number is not None:
            add(int(number))
    ids = tokenizer("a")["input_ids"]
    writer.add_add_bos_token(bool(ids) and ids[0] == tokenizer.bos_token_id)
    writer.add_add_eos_token(bool(ids) and ids[-1] == tokenizer.eos_token_id)
    if tokenizer.chat_template:
        writer.add_chat_template(tokenizer.chat_template)


def _end_of_turn(tokenizer: Any) -> int | None:
    """Return the token that ends an answer of the chat template, if it is another than the end."""
    token = turn_end(tokenizer).token
    return None if token == tokenizer.eos_token_id else token


def pre_tokenizer(core: dict[str, Any]) -> str:
    """Return llama.cpp's name of how a text is split before merging.

    Raises ExportError for one that is not known to be the same there: the model would get other
    tokens than it was trained on.
    """
    model, steps = core["model"], _steps(core.get("pre_tokenizer"))
    kinds = [step["type"] for step in steps]
    normalizer = (core.get("normalizer") or {}).get("type")
    found = None
    if model["type"] == "BPE" and not model.get("byte_fallback") and normalizer in (None, "NFC"):
        if kinds == ["ByteLevel"] and steps[0].get("use_regex", True):
            found = "gpt-2"
        elif kinds == ["Digits", "ByteLevel"] and steps[0].get("individual_digits"):
            found = "smollm"
        elif kinds == ["Split", "ByteLevel"] and not steps[1].get("use_regex", True):
            found = _BY_PATTERN.get(steps[0].get("pattern", {}).get("Regex", ""))
    if any(step.get("add_prefix_space") for step in steps):
        found = None
    if model.get("ignore_merges") and found != "llama-bpe":
        found = None
    if found is None:
        shown = " + ".join(kinds) or "none"
        raise ExportError(
            f"The tokenizer ({model['type']}, split by {shown}) cannot be written as GGUF here.",
            remedy=REMEDY,
        )
    return found


def _steps(found: dict[str, Any] | None) -> list[dict[str, Any]]:
    if found is None:
        return []
    if found["type"] == "Sequence":
        return [step for one in found["pretokenizers"] for step in _steps(one)]
    return [found]


def _merges(core: dict[str, Any]) -> list[str]:
    merges = core["model"].get("merges") or []
    if not merges:
        raise ExportError(
            "The tokenizer has no merges (one token a byte); GGUF cannot express that.",
            remedy="use a model with a byte-pair tokenizer, or export --to merged",
        )
    return [one if isinstance(one, str) else " ".join(one) for one in merges]


def _tokens(tokenizer: Any, vocab_size: int) -> tuple[list[str], list[int]]:
    """Return each token and its type by id; ids that the tokenizer does not use are padding."""
    by_id = {number: token for token, number in tokenizer.get_vocab().items()}
    added = tokenizer.added_tokens_decoder
    tokens, types = [], []
    for number in range(vocab_size):
        if number not in by_id:
            tokens.append(f"[PAD{number}]")
            types.append(gguf.TokenType.UNUSED)
        elif number in added:
            one = added[number]
            tokens.append(one.content)
            types.append(gguf.TokenType.CONTROL if one.special else gguf.TokenType.USER_DEFINED)
        else:
            tokens.append(by_id[number])
            types.append(gguf.TokenType.NORMAL)
    return tokens, types


# --- Writes a merged model as one GGUF file, and checks its answers by loading it back ---


_TYPES = {
    "f32": (gguf.GGMLQuantizationType.F32, gguf.LlamaFileType.ALL_F32),
    "f16": (gguf.GGMLQuantizationType.F16, gguf.LlamaFileType.MOSTLY_F16),
    "bf16": (gguf.GGMLQuantizationType.BF16, gguf.LlamaFileType.MOSTLY_BF16),
    "q8_0": (gguf.GGMLQuantizationType.Q8_0, gguf.LlamaFileType.MOSTLY_Q8_0),
}


def write_gguf(job: ExportJob, located: Located, folder: Path, progress: Progress) -> ExportLine:
    """Write `<name>-<type>.gguf` and a card. Raises ExportError for what GGUF cannot express."""
    # Merged without rounding: the file's own type rounds once.
    merged = merge(job, located, progress, dtype=job.source.compute_dtype)
    found = architecture_of(merged.model.config)
    name = f"{job.name}-{job.gguf_type.upper()}.gguf"
    progress(f"Writing {name}")
    _write(job, merged, found, folder / name)
    notes = [f"Weights: {job.gguf_type.upper()} (norms and biases: F32)."]
    if merged.prompts:
        progress("Loading it back with Transformers and comparing its answers")
        found_same = _check(job, merged, folder, name)
        notes.append(
            "Loaded back by Transformers, not by llama.cpp, and compared with the run's own"
            f" result: {found_same}"
        )
    text = card.card(
        job,
        what="A GGUF file for llama.cpp.",
        notes=notes,
        base_folder=located.base,
        library="gguf",
    )
    (folder / card.NAME).write_text(text)
    file = shlex.quote(f"{job.final}/{name}")
    length = f" -c {job.max_length}" if job.max_length else ""
    command = f"llama-server -m {file} --host 127.0.0.1 --port 8080{length}"
    return ExportLine(kind="done", notes=tuple(notes), command=command)


def _write(job: ExportJob, merged: Merged, found: Architecture, path: Path) -> None:
    config = merged.model.config
    wanted, file_type = _TYPES[job.gguf_type]
    writer = gguf.GGUFWriter(path, gguf.MODEL_ARCH_NAMES[found.arch])
    add_settings(writer, config, name=job.name)
    writer.add_file_type(file_type)
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    add_tokenizer(writer, merged.tokenizer, vocab_size=config.vocab_size)
    names = Names(config, found)
    weights = _weights(merged.model)
    types = {name: _type_of(weight, wanted) for name, weight in weights.items()}
    for name, weight in weights.items():
        kind = types[name]
        stored = np.dtype(_STORED[kind])
        shape = tuple(weight.shape)
        if stored == np.uint8:  # gguf wants the shape in bytes then.
            shape = gguf.quant_shape_to_byte_shape(shape, kind)
        size = int(np.prod(shape)) * stored.itemsize
        writer.add_tensor_info(names.name(name), shape, stored, size, kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for name, weight in weights.items():  # One at a time: the whole model is in memory already.
        writer.write_tensor_data(gguf.quantize(names.values(name, weight), types[name]))
    writer.close()


_STORED: dict[Any, Any] = {
    gguf.GGMLQuantizationType.F32: np.float32,
    gguf.GGMLQuantizationType.F16: np.float16,
    gguf.GGMLQuantizationType.BF16: np.uint8,
    gguf.GGMLQuantizationType.Q8_0: np.uint8,
}


def _weights(model: Any) -> dict[str, torch.Tensor]:
    """Return the weights by name; a tied output layer is the embedding and is not written."""
    tied = bool(model.config.tie_word_embeddings)
    return {
        name: weight
        for name, weight in model.state_dict().items()
        if not (tied and name == "lm_head.weight") and not name.endswith("inv_freq")
    }


def _type_of(weight: torch.Tensor, wanted: gguf.GGMLQuantizationType) -> gguf.GGMLQuantizationType:
    """Return F32 for vectors, as llama.cpp wants, and F16 for rows that are no whole blocks."""
    if weight.dim() < 2:
        return gguf.GGMLQuantizationType.F32
    if wanted == gguf.GGMLQuantizationType.Q8_0 and weight.shape[-1] % 32:
        return gguf.GGMLQuantizationType.F16
    return wanted


def _check(job: ExportJob, merged: Merged, folder: Path, name: str) -> str:
    from transformers import AutoModelForCausalLM

    dtype = getattr(torch, job.source.compute_dtype)
    again = AutoModelForCausalLM.from_pretrained(str(folder), gguf_file=name, dtype=dtype)
    after = answer_all(
        again.eval(), merged.tokenizer, merged.prompts, max_new_tokens=job.max_new_tokens
    )
    rounded = "" if job.gguf_type == "f32" else job.gguf_type.upper()
    return compare(merged.before, after, rounded_to=rounded).text()
