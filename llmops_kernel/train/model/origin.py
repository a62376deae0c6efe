"""The origin of a run's model: a model, or the base model of an adapter and that adapter."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from safetensors import SafetensorError

from llmops_kernel.config.models.methods import AdapterMethod
from llmops_kernel.config.models.objectives import AUTO_CLASSES
from llmops_kernel.config.models.train import TrainingConfig
from llmops_kernel.config.reading import model_folder
from llmops_kernel.errors import ModelError
from llmops_kernel.models.merging import (
    ROUNDED,
    difference,
    head_options,
    logits_of,
    merged,
    probe,
)
from llmops_kernel.models.source import base_of_adapter, has_tokenizer, pickle_refused
from llmops_kernel.store.files import file_lock


@dataclass(frozen=True)
class Origin:
    """The place of weights, tokenizer and, if one is trained further, the adapter."""

    weights: str
    """Folder or hub id of a whole model."""
    config: TrainingConfig
    """The run's, with the id and the revision of the weights."""
    adapter: Path | None = None
    is_merged: bool = False
    """The weights are of this run alone: those of another model with an adapter merged in."""

    @property
    def tokenizer(self) -> str:
        """Return a folder or hub id: an adapter's folder has the one that it was trained with."""
        has_own = self.adapter is not None and has_tokenizer(self.adapter)
        return str(self.adapter) if has_own else self.weights


def origin(
    source: str, config: TrainingConfig, *, roots: tuple[Path, ...], cache: Path | None
) -> Origin:
    """Raise ModelError for an adapter that this config cannot train further."""
    folder = Path(source)
    if not model_folder.is_adapter(folder):
        return Origin(source, config)
    if conflict := model_folder.conflict(config, folder):
        raise ModelError(f"{config.model.id}: {conflict[0]}.", remedy=conflict[1])
    name, revision, weights = base_of_adapter(folder, roots=roots, cache=cache)
    model = config.model.model_copy(update={"id": name, "revision": revision})
    return Origin(weights, config.model_copy(update={"model": model}), folder)


def merged_below(origin: Origin, folder: Path) -> Origin:
    """Return the origin with its adapter merged in, as a model in `folder`, for one above it.

    The first worker of a node makes it, the others and a retry find it. Raises ModelError.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with file_lock(folder.with_name(f".{folder.name}.lock"), mode=0o600):
        if not folder.exists():
            scratch = folder.with_name(f".{folder.name}-{os.getpid()}")
            try:
                _write_merged(origin, scratch)
                scratch.rename(folder)
            finally:
                shutil.rmtree(scratch, ignore_errors=True)
    model = origin.config.model.model_copy(update={"id": str(folder), "revision": None})
    config = origin.config.model_copy(update={"model": model})
    return Origin(str(folder), config, is_merged=True)


def _write_merged(origin: Origin, folder: Path) -> None:
    """Merge in the number format of the base model's files, and compare before it is written."""
    import transformers
    from peft import PeftModel

    adapter, settings = origin.adapter, origin.config.model
    assert adapter is not None
    task = str((model_folder.adapter_config(adapter) or {}).get("task_type"))
    kind = getattr(transformers, AUTO_CLASSES.get(task, AUTO_CLASSES["CAUSAL_LM"]))
    with _reading(adapter), loading_alone():
        base = kind.from_pretrained(
            origin.weights,
            dtype="auto",
            revision=settings.revision,
            trust_remote_code=settings.trust_remote_code,
            **head_options(adapter),
        )
        whole = PeftModel.from_pretrained(base, str(adapter))
        _check_loaded(whole, adapter)
        ids = probe([], vocabulary=base.config.get_text_config().vocab_size)
        before = logits_of(whole, ids, "cpu")
        model = merged(whole)
        if (share := difference(before, logits_of(model, ids, "cpu"))) > ROUNDED:
            raise ModelError(
                f"{adapter} merged into {settings.id} answers unlike the adapter apart: logits"
                f" differ by {share:.1%}.",
                remedy="train it further instead: model.adapter=continue",
            )
        # Transformers 5.23 writes nothing on other ranks, and any may hold the lock.
        model.should_save_on_this_rank = lambda *_, **__: True
        model.save_pretrained(folder)
        tokenizer = transformers.AutoTokenizer.from_pretrained(origin.tokenizer)
        tokenizer.save_pretrained(folder)


@contextmanager
def loading_alone() -> Iterator[None]:
    """Load on this worker alone: with the settings of ZeRO-3 and FSDP all would load a part."""
    from transformers.integrations import deepspeed

    reference = deepspeed._hf_deepspeed_config_weak_ref
    settings = reference() if reference is not None else None
    fsdp = os.environ.pop(_FSDP, None)
    if settings is not None:
        deepspeed.unset_hf_deepspeed_config()
    try:
        yield
    finally:
        if settings is not None:
            deepspeed.set_hf_deepspeed_config(settings)
        if fsdp is not None:
            os.environ[_FSDP] = fsdp


_FSDP = "ACCELERATE_USE_FSDP"


def continue_adapter(model: Any, config: TrainingConfig, folder: Path) -> Any:
    """Return the model with the adapter as it was saved, to be trained. Raises ModelError."""
    from peft import LoraConfig, PeftModel

    method = config.method
    assert isinstance(method, AdapterMethod)
    with _reading(folder):
        settings = LoraConfig.from_pretrained(str(folder))
        _check_targets(model, method, settings, folder)
        settings.lora_dropout = method.lora_dropout  # No weight depends on it.
        adapted = PeftModel.from_pretrained(model, str(folder), is_trainable=True, config=settings)
        _check_loaded(adapted, folder)
    return adapted


def merge_adapter(model: Any, folder: Path) -> Any:
    """Return the model with the adapter merged in, all of it to be trained. Raises ModelError."""
    from peft import PeftModel

    with _reading(folder):
        with_adapter = PeftModel.from_pretrained(model, str(folder))
        _check_loaded(with_adapter, folder)
    return merged(with_adapter).requires_grad_(True)


@contextmanager
def _reading(folder: Path) -> Iterator[None]:
    """Raise as ModelError what PEFT and PyTorch raise for an adapter's files."""
    try:
        yield
    except torch.OutOfMemoryError:
        raise
    except UnpicklingError as error:
        raise pickle_refused(str(folder)) from error
    except (OSError, ValueError, TypeError, KeyError, RuntimeError, SafetensorError) as error:
        raise ModelError(
            f"The adapter in {folder} cannot be loaded: {' '.join(str(error).split())[:300]}",
            remedy=_WHOLE,
        ) from error


_WHOLE = "check that it is an adapter of this base model, and that its files are whole"


def _check_targets(model: Any, method: AdapterMethod, settings: Any, folder: Path) -> None:
    """Raise ModelError where the config asks for adapters of other layers than there are."""
    configured, existing = (
        _layers(model, targets) for targets in (method.target_modules, settings.target_modules)
    )
    if getattr(settings, "target_parameters", None):
        # Of fused experts PEFT adapts the parameters, and then no layer that is called as they are.
        configured &= existing
    if configured == existing:
        return
    only = [f"{name} is not asked for" for name in sorted(existing - configured)[:2]]
    only += [f"{name} has none" for name in sorted(configured - existing)[:2]]
    raise ModelError(
        f"The adapter in {folder} is of other layers than method.target_modules="
        f"{method.target_modules}: {', '.join(only)}.",
        remedy=model_folder.continued_remedy(settings.to_dict()),
    )


def _layers(model: Any, targets: Any) -> set[str]:
    """Return the layers that PEFT adapts, by its rules: names, ends of names or `all-linear`."""
    from peft.tuners.tuners_utils import match_target_against_key
    from peft.utils.constants import SEQ_CLS_HEAD_NAMES
    from transformers.pytorch_utils import Conv1D

    if targets == "all-linear":
        last = model.get_output_embeddings()
        linear = (torch.nn.Linear, Conv1D)
        linear_layers = ((n, item) for n, item in model.named_modules() if isinstance(item, linear))
        return {
            name
            for name, item in linear_layers
            if item is not last and name not in SEQ_CLS_HEAD_NAMES
        }
    names = (name for name, _ in model.named_modules())
    if isinstance(targets, str):
        return {name for name in names if match_target_against_key(targets, name)}
    ends = tuple(f".{item}" for item in targets)
    return {name for name in names if name in targets or name.endswith(ends)}


def _check_loaded(model: Any, folder: Path) -> None:
    """Compare the adapter's weights with those in its file. Raises ModelError."""
    from peft import get_peft_model_state_dict
    from peft.utils import load_peft_weights

    saved: Mapping[str, Any] = load_peft_weights(str(folder), device="cpu")
    loaded = get_peft_model_state_dict(model, save_embedding_layers=False)
    wrong = [f"{name} is not in the file" for name in loaded if name not in saved]
    # Of an adapter of an embedding PEFT saves the base model's weight too.
    names = {name.replace(".base_layer", "") for name in model.state_dict()}
    wrong += [
        f"{name} has no place in the model"
        for name in saved
        if name not in loaded and name.replace(".base_layer", "") not in names
    ]
    wrong += [
        f"{name} differs from the file"
        for name, value in loaded.items()
        if name in saved and not torch.equal(value.float().cpu(), saved[name].float())
    ]
    if wrong:
        raise ModelError(
            f"The adapter in {folder} was not loaded as it was saved: {wrong[0]}"
            + (f", and {len(wrong) - 1} more" if len(wrong) > 1 else "")
            + ".",
            remedy=_WHOLE,
        )
