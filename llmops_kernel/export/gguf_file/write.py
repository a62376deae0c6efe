"""Writes a merged model as one GGUF file, and checks its answers by loading it back."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch

from llmops_kernel.export import card
from llmops_kernel.export.answers import answer_all, compare
from llmops_kernel.export.gguf_file.architecture import (
    Architecture,
    Names,
    add_settings,
    architecture_of,
)
from llmops_kernel.export.gguf_file.tokenizer import add_tokenizer
from llmops_kernel.export.weights import Located, Merged, Progress, merge
from llmops_kernel.store.export_job import ExportJob, ExportLine

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
