"""Facts about a model or an adapter from its files, without loading it."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Literal

import psutil

from llmops_kernel.errors import ModelError
from llmops_kernel.models.merging import ADAPTER_CONFIG, CONFIG, HEAD_FILE, TOKENIZER_CONFIG
from llmops_kernel.score.engines.prompts import PromptError
from llmops_kernel.score.engines.protocol import TEXT_CLASS, Encoder, EngineSpec

Shapes = Mapping[str, tuple[int, ...]]
"""Name of a weight -> its shape."""
_BYTES = {"bfloat16": 2, "float16": 2, "float32": 4}
_ADAPTER = "adapter_model.safetensors"
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
        stats = [(Path(folder) / name).stat() for name in (_ADAPTER, ADAPTER_CONFIG)]
    except OSError:
        return folder
    return f"{folder}@" + "-".join(f"{stat.st_mtime_ns}.{stat.st_size}" for stat in stats)


def _adapter_config(folder: Path) -> tuple[int, str]:
    """Return the largest rank and the name of the base."""
    file = folder / ADAPTER_CONFIG
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


# --- What a model returns, as the files beside it say ---


Read = Callable[[str], Any]
"""Name of a JSON file of a model or an adapter -> its content; None where it is not there."""
_SENTENCES = ("sentence_bert_config.json", "sentence_roberta_config.json")
_POOLINGS: Final[Mapping[str, Literal["last", "mean", "cls"]]] = {
    "lasttoken": "last",
    "pooling_mode_lasttoken": "last",
    "mean": "mean",
    "pooling_mode_mean_tokens": "mean",
    "cls": "cls",
    "pooling_mode_cls_token": "cls",
}
"""Names of sentence-transformers, since version 5.4 and before."""
_SIDES = {"query": ("query",), "document": ("document", "passage", "corpus")}
"""Which of a model's prompts `encode_query` and `encode_document` look for, in this order."""


@dataclass(frozen=True, kw_only=True)
class Returned:
    """What a model returns, and how it is loaded for it."""

    kind: Literal["text", "labels", "value", "embedding"] = "text"
    auto_class: str = TEXT_CLASS
    head: Mapping[str, Any] = field(default_factory=dict)
    """What the base of an adapter is made with besides its own config."""
    labels: tuple[str, ...] = ()
    is_multi_label: bool = False
    width: int = 1
    """Numbers of the head."""
    encoder: Encoder | None = None
    prefixes: Mapping[str, str] = field(default_factory=dict)
    """`query` and `document` -> what the model has been trained with before a text."""

    def encoder_of(self, side: str) -> Encoder | None:
        """Return how texts of a side are read; `none` and sides without a prefix have none."""
        encoder = self.encoder
        return encoder and replace(encoder, prefix=self.prefixes.get(side, ""))


def returned_by(read: Read, base: Read | None = None) -> Returned:
    """Return what a model's files say that it returns; of an adapter's where there is a `base`.

    Raises ModelError for vectors that are made in a way that no engine knows.
    """
    adapter = (read(ADAPTER_CONFIG) or {}) if base else {}
    model = (base or read)(CONFIG) or {}
    modules, head = read("modules.json"), read(HEAD_FILE)
    if isinstance(modules, list):
        return _embedding(read, modules, model, base or read)
    kind = str(adapter.get("task_type") if base else (model.get("architectures") or [""])[0])
    if isinstance(head, dict) or (not base and kind.endswith("ForSequenceClassification")):
        return _head(model | (head or {}), head if base else {})
    if kind in ("FEATURE_EXTRACTION", "SEQ_CLS"):
        name, what = ("modules.json", "pooled") if kind[0] == "F" else (HEAD_FILE, "named")
        raise ModelError(
            f"The adapter is of the type {kind} and has no {name}, which says how its numbers are"
            f" {what}.",
            remedy=f"copy {name} from the output of its run, or name the run in model.run",
        )
    return Returned()


def _head(settings: Mapping[str, Any], options: dict[str, Any]) -> Returned:
    """Return the labels or numbers of a head, by the names that Transformers has for them."""
    names = {int(number): str(name) for number, name in (settings.get("id2label") or {}).items()}
    width = int(settings.get("num_labels") or len(names) or 2)
    problem = settings.get("problem_type")
    is_value = problem == "regression" or (width == 1 and problem is None)
    return Returned(
        kind="value" if is_value else "labels",
        auto_class="AutoModelForSequenceClassification",
        head=options,
        labels=() if is_value else tuple(names.get(n, f"LABEL_{n}") for n in range(width)),
        is_multi_label=problem == "multi_label_classification",
        width=width,
    )


def _embedding(read: Read, modules: list[Any], model: Mapping[str, Any], base: Read) -> Returned:
    """Return how sentence-transformers would make a vector with these modules."""
    paths = {str(one["type"]).rpartition(".")[2]: str(one["path"]) for one in modules}
    kinds = [str(one["type"]).rpartition(".")[2] for one in modules]
    if kinds[:2] != ["Transformer", "Pooling"] or kinds[2:] not in ([], ["Normalize"]):
        raise _not_read(f"the modules {', '.join(kinds)}")
    if paths["Transformer"]:
        raise _not_read(f"its weights in the folder {paths['Transformer']}")
    pooling = read(f"{paths['Pooling']}/config.json") or {}
    chosen = pooling.get("pooling_mode") or [key for key, value in pooling.items() if value is True]
    names = [chosen] if isinstance(chosen, str) else [n for n in chosen if n != "include_prompt"]
    if len(names) != 1 or names[0] not in _POOLINGS:
        raise _not_read(f"the pooling {', '.join(names) or 'of no kind'}")
    about = read("config_sentence_transformers.json") or {}
    prompts = {name: str(text) for name, text in (about.get("prompts") or {}).items()}
    if not pooling.get("include_prompt", True) and any(prompts.values()):
        raise _not_read("a pooling that leaves the prompt out")
    sentences: Mapping[str, Any] = next(filter(None, map(read, _SENTENCES)), {})
    if "message" in (sentences.get("modality_config") or {}):
        raise _not_read("the chat template around each text")
    settings = read(TOKENIZER_CONFIG) or base(TOKENIZER_CONFIG) or {}
    lengths = (
        sentences.get("max_seq_length") or settings.get("model_max_length"),
        model.get("max_position_embeddings"),
    )
    return Returned(
        kind="embedding",
        auto_class="AutoModel",
        encoder=Encoder(
            pooling=_POOLINGS[names[0]],
            is_normalized="Normalize" in kinds,
            # Of a tokenizer without a limit Transformers writes 10 to the power of 30.
            max_length=min((int(one) for one in lengths if one and one < 1e9), default=None),
            is_lower_case=bool(sentences.get("do_lower_case")),
        ),
        prefixes={
            side: next((prompts[name] for name in known if name in prompts), "")
            for side, known in _SIDES.items()
        },
    )


def _not_read(what: str) -> ModelError:
    return ModelError(
        f"The files of the model say that its vectors are made with {what}, which no engine here"
        " does.",
        remedy="use sentence-transformers itself, or a model that pools the last token, the mean or"
        " the first token",
    )
