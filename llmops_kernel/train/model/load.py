"""Load the model, prepared by the config's method."""

from __future__ import annotations

import logging
import math
import re
import sys
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from importlib import import_module
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
import transformers
from safetensors import SafetensorError
from torch.nn.parallel import DistributedDataParallel

from llmops_kernel.config.models.parallelism import ZeroStrategy
from llmops_kernel.config.models.train import TrainingConfig
from llmops_kernel.config.problems import did_you_mean
from llmops_kernel.errors import HookError, LLMOpsError, ModelError
from llmops_kernel.models.source import pickle_refused
from llmops_kernel.train.hooks import Hooks, call
from llmops_kernel.train.model.kept import Keeping, Loaded
from llmops_kernel.train.model.origin import merge_adapter
from llmops_kernel.train.model.tokenizer import load_error


@dataclass(frozen=True)
class ParameterCount:
    total: int
    trainable: int


def load_model(
    source: str,
    config: TrainingConfig,
    hooks: Hooks,
    *,
    keeping: Keeping | str = "",
    say: Callable[[str], object] = str,
    adapter: Path | None = None,
    options: Mapping[str, Any] | None = None,
) -> Any:
    """Return the model in its storage dtype, prepared by the config's method.

    With `keeping` it may be mapped instead of read; `say` gets words on that. `adapter` is a folder
    with one of the model, which the method trains further. `options`: what the objective needs of
    the model, such as the number of labels. Raises ModelError, HookError.
    """
    if hooks.build_model is not None:
        model = call(hooks.build_model, config)
        if not isinstance(model, torch.nn.Module):
            raise HookError(
                f"build_model returned a {type(model).__name__}.",
                remedy="return a torch.nn.Module, such as a Transformers model",
            )
    else:
        with listening(config.model.id, new_head=bool(options)):
            model = _own(source, config, keeping, say, options or {})
    if hasattr(model, "config"):
        model.config.use_cache = False
    with listening(config.model.id):
        model = prepare(model, config, adapter)
    if config.method.saves == "adapter" and hooks.build_model is None:
        _skip_frozen_in_ddp(model)
    return model


def prepare(model: Any, config: TrainingConfig, adapter: Path | None = None) -> Any:
    """Mark what the method trains, and add what it adds. Raises ModelError."""
    if adapter is not None and config.method.saves == "model":
        model = merge_adapter(model, adapter)
        adapter = None
    module, _, function = config.method.apply.partition(":")
    options = {} if adapter is None else {"adapter": adapter}
    prepared = getattr(import_module(module), function)(model, config, **options)
    choose_trained(prepared, config)
    return prepared


def choose_trained(model: Any, config: TrainingConfig) -> None:
    """Freeze what `training.freeze` names, or all but `train_only`'s. Raises ModelError."""
    training = config.training
    patterns = training.freeze or training.train_only
    trained = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
    named: set[str] = set()
    for pattern in patterns:
        matches = {name for name in trained if fnmatchcase(name, f"*{pattern}*")}
        if not matches:
            field = "freeze" if training.freeze else "train_only"
            example = next(iter(trained), "none")
            raise ModelError(
                f"training.{field} names {pattern!r}, which is no weight that {config.method.type}"
                f" trains.",
                remedy=did_you_mean(pattern, {part for name in trained for part in name.split(".")})
                or f"such weights are named as {example}",
            )
        named |= matches
    frozen = named if training.freeze else trained.keys() - named if patterns else set()
    if frozen and len(frozen) == len(trained):
        raise ModelError(
            "training.freeze names all weights, so nothing would be trained.",
            remedy="name fewer of them",
        )
    for name in frozen:
        trained[name].requires_grad_(requires_grad=False)


def _loading(config: TrainingConfig) -> dict[str, Any]:
    """Return how the method loads weights, such as in 4 bits."""
    module, _, function = config.method.load.partition(":")
    return getattr(import_module(module), function)(config) if function else {}


def _skip_frozen_in_ddp(model: Any) -> None:
    """Exclude frozen weights from DDP's broadcast: every rank reads them from the same file."""
    frozen = [name for name, parameter in model.named_parameters() if not parameter.requires_grad]
    DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(model, frozen)


def _own(
    source: str,
    config: TrainingConfig,
    keeping: Keeping | str,
    say: Callable[[str], object],
    options: Mapping[str, Any],
) -> Any:
    def read() -> Loaded:
        model, info = _from_pretrained(source, config, options)
        if options:
            info = {**info, "missing_keys": of_the_body(model, info["missing_keys"])}
        if getattr(model, "_hf_peft_config_loaded", False):
            raise _adapter_of_the_hub(config)
        if words := check_weights(config.model.id, info):
            say(words)
        return model, info

    if isinstance(keeping, str):
        say(f"read from its files, not kept: {keeping}" if keeping else "")
        return read()[0]
    model, words = keeping.model(read)
    say(words)
    return model


def of_the_body(model: Any, names: Collection[str]) -> list[str]:
    """Return those of a model's weights that are not of its head, which begins at random."""
    prefix = f"{model.base_model_prefix}."
    return [name for name in names if name.startswith(prefix)]


def _from_pretrained(source: str, config: TrainingConfig, options: Mapping[str, Any]) -> Loaded:
    attention = config.model.attention  # Transformers' own choice knows what the model can do
    try:
        loaded: Loaded = getattr(transformers, config.objective.auto_class).from_pretrained(
            source,
            output_loading_info=True,
            revision=config.model.revision,
            trust_remote_code=config.model.trust_remote_code,
            dtype=storage_dtype(config),
            attn_implementation=None if attention == "auto" else attention,
            **_loading(config),
            **options,
        )
        return loaded
    except LLMOpsError:
        raise
    except UnpicklingError as error:
        raise pickle_refused(config.model.id) from error
    except (OSError, ValueError, ImportError, RuntimeError, SafetensorError) as error:
        raise load_error("model", config, error) from error


def _adapter_of_the_hub(config: TrainingConfig) -> ModelError:
    return ModelError(
        f"{config.model.id} is an adapter, and its base model was loaded with it.",
        remedy=f"copy it first (`hf download {config.model.id} --local-dir FOLDER`) and set"
        " model.id=FOLDER to train it further, or name its base model to train a new one",
    )


def storage_dtype(config: TrainingConfig) -> torch.dtype:
    """Return the dtype of the weights: fp32 under bf16 autocast in full training without DeepSpeed.

    Otherwise AdamW would update bf16 weights directly and lose small updates. DeepSpeed keeps
    its own fp32 master copy, and LoRA's frozen weights are never updated.
    """
    if config.model.dtype == "float32":
        return torch.float32
    has_copy = isinstance(config.parallelism, ZeroStrategy)
    plain_full = config.method.saves == "model" and not has_copy
    return torch.float32 if plain_full else torch.bfloat16


def load_result(folder: Path, config: TrainingConfig) -> Any:
    """Return the whole model of a folder that this run has written, in the dtype of its files."""
    attention = config.model.attention
    model, info = getattr(transformers, config.objective.auto_class).from_pretrained(
        str(folder),
        output_loading_info=True,
        trust_remote_code=config.model.trust_remote_code,
        dtype="auto",
        attn_implementation=None if attention == "auto" else attention,
    )
    check_weights(str(folder), info)
    return model


def count_bytes(model: Any) -> int:
    """Return the memory of all weights, those that are sharded over the workers too."""
    return sum(
        getattr(parameter, "ds_numel", parameter.numel()) * parameter.element_size()
        for parameter in model.parameters()
    )


def count_embeddings(model: Any) -> int:
    """Return how many tokens have an embedding; a number above all ids where it is not known."""
    find = getattr(model, "get_input_embeddings", None)
    try:
        layer = find() if find is not None else None
    except NotImplementedError:
        layer = None
    # Not the weight's shape, which is empty where it is sharded.
    return int(getattr(layer, "num_embeddings", 0) or sys.maxsize)


def count_parameters(model: Any) -> ParameterCount:
    """Count parameters, those that ZeRO-3 has sharded and those packed into 4 bits too."""
    total = trainable = 0
    for parameter in model.parameters():
        size = _size(parameter)
        total += size
        trainable += size if parameter.requires_grad else 0
    return ParameterCount(total, trainable)


def _size(parameter: Any) -> int:
    quantised = getattr(parameter, "quant_state", None)
    if quantised is not None:  # bitsandbytes: two weights in each byte
        return int(math.prod(quantised.shape))
    return int(getattr(parameter, "ds_numel", parameter.numel()))  # numel() is 0 under ZeRO-3


# --- Messages of libraries while a model is built ---
# Where work that was asked for is not done, that is an error.
# They say so in a warning, and train something else.


_NOT_DONE = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        # PEFT 0.21: a second adapter, an adapter without its weights, layers that got none
        r"already found a `?peft_config`? attribute",
        r"trying to modify a model with PEFT for a second time",
        r"missing adapter keys",
        r"should not be contained in the prefix",
        r"no (module|parameter) was matched",
        r"did not match any targeted module and were ignored",
        r"but no modules were excluded",
        r"all adapters are already merged",
        r"embedding scaling will not be applied",
        r"LoRA tensor\(s\) have invalid shape",
        r"no tied modules (are added|were found)",
        # Transformers 5: weights that are not those of the files
        r"newly initialized",
        r"not initialized from the model checkpoint",
        r"were not used when initializing",
        r"but both are present in the checkpoints with different values",
        r"using a model of type .* to instantiate a model of type",
        # Of any: `specified but will be ignored`, `is not supported. Ignoring`
        r"\bwill be ignored\b",
        r"not supported[^.]*[.,:;] *ignoring",
    )
)
_DONE = re.compile(
    "|".join(
        (
            r"tied layer is part of the adapter",
            r"tied_target_modules",
            r"_pattern keys did not match any targeted module and were ignored: \['\.\*\\",
        )
    )
)
"""Said of tied embeddings, which `models.merging` merges rightly, and of patterns that PEFT itself
adds for fused experts (`peft/utils/transformers_weight_conversion.py`): no config of ours has any.
"""
_NEW_HEAD = re.compile("newly initialized", re.IGNORECASE)
_LIBRARIES = ("transformers", "peft", "accelerate", "deepspeed", "DeepSpeed", "bitsandbytes")


def refusal(text: str) -> bool:
    """Return whether a library says there that it does not do what it was asked for."""
    return any(pattern.search(text) for pattern in _NOT_DONE) and not _DONE.search(text)


class _Listener(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


@contextmanager
def listening(model_id: str, *, new_head: bool = False) -> Iterator[None]:
    """Raise ModelError at the end of the block if a library has refused something in it.

    Other warnings are shown as ever. `new_head`: that it begins at random is meant.
    """
    listener = _Listener()
    loggers = [logging.getLogger(name) for name in _LIBRARIES]
    for logger in loggers:
        logger.addHandler(listener)
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            yield
    finally:
        for logger in loggers:
            logger.removeHandler(listener)
    texts = [str(warning.message) for warning in caught]
    for text in (*texts, *listener.texts):
        if refusal(text) and not (new_head and _NEW_HEAD.search(text)):
            raise _refused(model_id, " ".join(text.split())[:600])
    for warning in caught:
        if not _DONE.search(str(warning.message)):
            warnings.warn_explicit(
                warning.message, warning.category, warning.filename, warning.lineno
            )


def check_weights(model_id: str, info: Mapping[str, Any]) -> str:
    """Return a note on a model's files, by the loading info of `from_pretrained`.

    Raises ModelError for weights that the files do not have, which are random.
    """
    missing = sorted(info.get("missing_keys") or ())
    mismatched = sorted(str(mismatch[0]) for mismatch in info.get("mismatched_keys") or ())
    errors = list(info.get("error_msgs") or ())
    if missing or mismatched or errors:
        first = (missing or mismatched or errors)[0]
        problem = "is not in its files" if missing else "has another shape in its files"
        raise ModelError(
            f"{len(missing) + len(mismatched) + len(errors)} weights of {model_id} cannot be loaded"
            f" and would be random: {first} {problem}.",
            remedy="copy all files of the model again; a model that begins with random weights is"
            " made by the hook build_model(config)",
        )
    unexpected = sorted(info.get("unexpected_keys") or ())
    if not unexpected:
        return ""
    return f"{len(unexpected)} weights of its files have no place in it, such as {unexpected[0]}"


def _refused(model_id: str, text: str) -> ModelError:
    return ModelError(
        f"A library does not do what was asked for with {model_id}: {text}",
        remedy="nothing was trained; change the setting that it names, or the model's files",
    )
