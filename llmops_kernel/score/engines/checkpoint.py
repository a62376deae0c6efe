"""Facts about a model or an adapter from its files, without loading it."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil

from llmops_kernel.errors import ModelError
from llmops_kernel.score.engines.prompts import PromptError
from llmops_kernel.score.engines.protocol import EngineSpec

Shapes = Mapping[str, tuple[int, ...]]
"""Name of a weight -> its shape."""
_BYTES = {"bfloat16": 2, "float16": 2, "float32": 4}
_ADAPTER = "adapter_model.safetensors"
_ADAPTER_CONFIG = "adapter_config.json"
_MAX_HEADER = 100_000_000
_NO_MEMORY = ("out of memory", "can't allocate memory", "not enough memory")


def shapes_of(folder: Path, pattern: str = "*.safetensors") -> dict[str, tuple[int, ...]]:
    """Return the shapes in a folder's safetensors files; empty where there are none."""
    shapes: dict[str, tuple[int, ...]] = {}
    for file in sorted(folder.glob(pattern)):
        for name, entry in _header(file).items():
            if name != "__metadata__":
                shapes[name] = tuple(entry["shape"])
    return shapes


def _header(file: Path) -> dict[str, Any]:
    """Return the JSON that a safetensors file begins with. Raises ModelError."""
    try:
        with file.open("rb") as stream:
            (size,) = struct.unpack("<Q", stream.read(8))
            text = stream.read(size) if size <= _MAX_HEADER else b""
        header: dict[str, Any] = json.loads(text)
    except (OSError, ValueError, struct.error) as error:
        raise ModelError(
            f"{file} is no safetensors file, or its download was cut: {error}",
            remedy="delete it and download the model again",
        ) from error
    return header


def check_memory(spec: EngineSpec, free_bytes: int | None = None) -> None:
    """Raise ModelError where the weights alone need more memory than is free.

    `free_bytes`: of all devices of the engine; None: this machine's memory. Does nothing where the
    weights are not in a folder.
    """
    folder = Path(spec.model)
    if not folder.is_dir():
        return
    count = 0
    for shape in shapes_of(folder).values():
        size = 1
        for dimension in shape:
            size *= dimension
        count += size
    needed = count * _BYTES.get(spec.dtype, 2)
    free = psutil.virtual_memory().available if free_bytes is None else free_bytes
    if needed > free:
        raise ModelError(
            f"{spec.model} does not fit: its {count / 1e9:,.1f} billion weights need"
            f" {needed / 1e9:,.1f} GB as {spec.dtype}, and {free / 1e9:,.1f} GB are free.",
            remedy="use a smaller model, more GPUs (engine.tensor_parallel), or a larger node",
        )


def check_adapter(folder: str, base: Shapes, model: str, *, is_complete: bool = True) -> int:
    """Return the rank of a LoRA adapter. Raises PromptError where it is not of this model.

    Shapes decide, not the base's name in the adapter's config: the same model has many names.
    `is_complete`: the base has no weights but these.
    """
    rank, base_name = _adapter_config(Path(folder))
    weights = shapes_of(Path(folder), _ADAPTER)
    if not weights:
        raise PromptError(f"{folder} has no {_ADAPTER}, so there is no LoRA adapter to load")
    for name, shape in weights.items():
        module, part = _target(name)
        weight_shape = base.get(module)
        if part and base and weight_shape is None and is_complete:
            raise _other_base(folder, base_name, model, f"{module} is not in this model")
        if weight_shape is None or len(weight_shape) != 2 or len(shape) != 2:
            continue
        width, expected = (
            (shape[1], weight_shape[1]) if part == "lora_A" else (shape[0], weight_shape[0])
        )
        if part and width != expected:
            detail = f"its {part} of {module} is {width:,} wide, the model's weight {expected:,}"
            raise _other_base(folder, base_name, model, detail)
    return rank


def version_of(folder: str) -> str:
    """Return a name of an adapter's files that changes when they are written anew."""
    try:
        stats = [(Path(folder) / name).stat() for name in (_ADAPTER, _ADAPTER_CONFIG)]
    except OSError:
        return folder
    return f"{folder}@" + "-".join(f"{stat.st_mtime_ns}.{stat.st_size}" for stat in stats)


def _adapter_config(folder: Path) -> tuple[int, str]:
    """Return the largest rank and the name of the base."""
    file = folder / _ADAPTER_CONFIG
    try:
        config = json.loads(file.read_text())
    except OSError as error:
        raise PromptError(f"{folder} is no adapter: it has no adapter_config.json") from error
    except ValueError as error:
        raise PromptError(f"{file} is not JSON: {error}") from error
    kind = config.get("peft_type")
    if kind != "LORA":
        raise PromptError(f"{folder} is an adapter of type {kind}; only LORA can be scored")
    ranks = [int(config.get("r") or 0), *(config.get("rank_pattern") or {}).values()]
    return max(ranks), str(config.get("base_model_name_or_path") or "an unknown model")


def _target(name: str) -> tuple[str, str]:
    """Return `("model.layers.0.self_attn.q_proj.weight", "lora_A")` for an adapter's weight.

    The second is empty for other weights than LoRA's of a linear layer.
    """
    module, _, rest = name.removeprefix("base_model.model.").partition(".lora_")
    part = f"lora_{rest.split('.')[0]}" if rest else ""
    return f"{module}.weight", part if part in ("lora_A", "lora_B") else ""


def _other_base(folder: str, base_name: str, model: str, detail: str) -> PromptError:
    return PromptError(
        f"the adapter {folder} is of another base model ({base_name}), not of {model}: {detail}"
    )


def load_error(spec: EngineSpec, error: BaseException) -> ModelError:
    """Return a library's exception as an error about the config."""
    lines = str(error).strip().splitlines()
    first = lines[0] if lines else type(error).__name__
    lower = str(error).lower()
    if isinstance(error, MemoryError) or any(text in lower for text in _NO_MEMORY):
        remedy = "use a smaller model, more GPUs (engine.tensor_parallel), or a larger node"
        return ModelError(f"{spec.model} does not fit into memory: {first}", remedy=remedy)
    return ModelError(
        f"{spec.model} cannot be loaded with {spec.type}: {first}",
        remedy="use a folder with config.json, tokenizer and safetensors of a causal language"
        " model, or a hub id (with HF_TOKEN for private ones, and network on the cluster's nodes)",
    )
