"""Read the small files of a model's or an adapter's folder, without libraries."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from llmops_kernel.config.models.methods import AdapterMethod
from llmops_kernel.config.models.sections import CATALOGUE
from llmops_kernel.config.models.train import TrainingConfig

TOO_LARGE: Final = (
    "use the tokenizer that the model was trained with, or give the model more embeddings once:"
    " `model.resize_token_embeddings(len(tokenizer))`, and save both into a new folder"
)
_ENDS = ("pad_token", "eos_token", "bos_token")


def tokens_without_embedding(folder: Path) -> str:
    """Return what is wrong with the tokens that every row may have; empty: nothing is.

    Those that pad and end a row, and those that the chat template writes. Others, such as the ones
    of images, need no embedding as long as no row has them; the workers look at the rows.
    """
    config = _json(folder / "config.json")
    text = config.get("text_config")
    size = config.get("vocab_size") or (text.get("vocab_size") if isinstance(text, dict) else None)
    if not isinstance(size, int):
        return ""
    settings = _json(folder / "tokenizer_config.json")
    template = _template(folder, settings)
    ends = {_content(settings.get(name)) for name in _ENDS}
    wrong = [
        f"{content} is {number:,}"
        for content, number in _added(folder)
        if number >= size and (content in ends or content in template)
    ]
    if not wrong:
        return ""
    return (
        "the tokenizer has tokens that the model has no embedding for:"
        f" {', '.join(wrong[:3])}, and there are {size:,} embeddings"
    )


def _added(folder: Path) -> list[tuple[str, int]]:
    """Return (text, id) of the added tokens: the part of a large file that stands first."""
    try:
        text = (folder / "tokenizer.json").read_text()
        begin = text.index("[", text.index('"added_tokens"'))
        tokens, _ = json.JSONDecoder().raw_decode(text, begin)
        return [(str(token["content"]), int(token["id"])) for token in tokens]
    except (OSError, ValueError, KeyError, TypeError):
        return []


def _template(folder: Path, settings: dict[str, Any]) -> str:
    try:
        return (folder / "chat_template.jinja").read_text()
    except (OSError, ValueError):
        return str(settings.get("chat_template") or "")


def _content(token: Any) -> str:
    """Return the text of a token, which may be written as an object."""
    return str(token.get("content") if isinstance(token, dict) else token)


def _json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


CONFIG = "adapter_config.json"
RESOLVED = "config.train.yaml"
"""Beside a result: the config that it was trained with."""
WEIGHTS = ("adapter_model.safetensors", "adapter_model.bin")
_SAME = ("r", "lora_alpha", "use_rslora", "use_dora")
"""Fields of a method that an adapter's weights depend on, as PEFT names them too."""


def adapter_config(folder: Path) -> dict[str, Any] | None:
    """Return what PEFT has written beside an adapter; None if the folder has none."""
    try:
        content = json.loads((folder / CONFIG).read_text())
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) else None


def is_adapter(folder: Path) -> bool:
    """Return whether a folder has an adapter: Transformers takes it before a model in the same."""
    return (folder / CONFIG).is_file()


def base_names(folder: Path) -> list[tuple[str, str | None]]:
    """Return (id, revision) of the base model, the likeliest first: names, folders or hub ids.

    The run's own config has the id as the user wrote it; of a folder, PEFT's has no more than its
    name.
    """
    names = [_of_run(folder)]
    config = adapter_config(folder) or {}
    names.append((str(config.get("base_model_name_or_path") or ""), config.get("revision")))
    return [(name, revision) for name, revision in names if name]


def conflict(config: TrainingConfig, folder: Path) -> tuple[str, str] | None:
    """Return what stands against training the adapter further, and what to do; None: nothing."""
    adapter, method = adapter_config(folder), config.method
    if any(folder.glob("model*.safetensors")) or any(folder.glob("pytorch_model*.bin")):
        message = f"the folder has both a whole model and an adapter ({CONFIG})"
        return message, f"move one of them, or delete {CONFIG} to use the model"
    if adapter is None or not any((folder / name).is_file() for name in WEIGHTS):
        return f"the folder has {CONFIG}, and it or the weights cannot be read", "restore its files"
    if (kind := adapter.get("peft_type")) != "LORA":
        return f"the folder has an adapter of type {kind}", "only LoRA can be trained further"
    if not base_names(folder):
        return f"{CONFIG} does not name the base model", "write it in base_model_name_or_path"
    if method.saves == "adapter" and config.model.adapter == "merge":
        return None
    if method.saves == "model":
        if "weights" not in config.parallelism.sharded:
            return None  # It is merged first.
        return (
            f"the folder has an adapter, and {config.parallelism.strategy} shards the weights that"
            " it would be merged into",
            "merge it first: `llmops export RUN`; or set parallelism.strategy=zero2",
        )
    if not isinstance(method, AdapterMethod):
        return f"method {method.type} cannot train an adapter further", "set method.type=lora"
    if differences := _differences(method, adapter):
        return (
            f"the adapter in it cannot be trained further with {', '.join(differences)}",
            continued_remedy(adapter),
        )
    return None


def continued_remedy(adapter: Mapping[str, Any]) -> str:
    """Say how to train it further, with its own values, and how to begin another one on it."""
    own = [f"{name}={_word(adapter.get(name))}" for name in _SAME if adapter.get(name)]
    return (
        f"set the method's {', '.join(own)} and the same target_modules; or model.adapter=merge,"
        " for a new one above it"
    )


def _differences(method: AdapterMethod, adapter: Mapping[str, Any]) -> list[str]:
    """Return `r=16 (it has 4)` of each; which layers `all-linear` means only the model knows."""
    differences = [
        f"{name}={_word(getattr(method, name))} (it has {_word(adapter.get(name))})"
        for name in _SAME
        if getattr(method, name) != (adapter.get(name) or type(getattr(method, name))())
    ]
    targets, there = method.target_modules, adapter.get("target_modules")
    if not isinstance(targets, str) and isinstance(there, list):
        short = {name.rpartition(".")[2] for name in there}
        if {name.rpartition(".")[2] for name in targets} != short:
            differences.append(
                f"target_modules={sorted(targets)} (it has {sorted(short)})".replace("'", "")
            )
    return differences


def _word(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _of_run(folder: Path) -> tuple[str, str | None]:
    """Return the model of the run that wrote the folder; empty where that was an adapter too."""
    try:
        written = yaml.safe_load((folder / RESOLVED).read_text())
        model = written["model"]
        name, revision = str(model["id"]), model.get("revision")
    except (OSError, ValueError, KeyError, TypeError, AttributeError, yaml.YAMLError):
        return "", None
    path = Path(name).expanduser()
    is_local = name not in CATALOGUE and path.is_absolute()
    return ("", None) if is_local and is_adapter(path) else (name, revision)
