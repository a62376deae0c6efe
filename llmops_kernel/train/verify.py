"""Before the first step: is what the config asks for what will run? A difference is an error.

Libraries replace what they cannot do, often without a word: Accelerate trains with plain DDP where
it leaves DeepSpeed or FSDP out, with the same losses and several times the memory.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch

from llmops_kernel.config.models.methods import QloraMethod
from llmops_kernel.config.models.train import TrainingConfig
from llmops_kernel.errors import ConfigError, TrainingError
from llmops_kernel.metrics.model_work import EAGER, Kernel, Kernels
from llmops_kernel.train.data.examples import Packed
from llmops_kernel.train.measure.device import uses_tf32
from llmops_kernel.train.model.load import ParameterCount, count_parameters
from llmops_kernel.train.parallelism.strategy import strategy, wrapped


def verify(
    trainer: Any, config: TrainingConfig, *, loaded: ParameterCount, is_own_model: bool
) -> dict[str, str]:
    """Return what will run, for the journal; takes milliseconds. Call it when the engine is ready.

    `is_own_model`: the hook `build_model` made the model, which may be any. Raises TrainingError on
    all ranks alike, for what each can see of its own part. With joined rows the model is run with
    a few tokens, which is a collective where its weights are sharded.
    """
    model, engine = trainer.model, strategy(config)
    updated = _dtypes(engine.trained(trainer) if trainer.optimizer is not None else ())
    count = count_parameters(model)
    weights = _dtypes(model.parameters())
    attention = attention_names(model)
    problems = [
        engine.engine_problem(trainer, config),
        _count_problem(count, loaded, config, is_own_model=is_own_model),
        _dtype_problem(weights, updated, config, is_own_model=is_own_model),
        _packing_problem(trainer.train_dataset, config),
        "" if is_own_model else _attention_problem(attention, config),
        *(() if is_own_model else speed_problems(trainer, config)),
    ]
    _raise_if(problems)
    # After the others: it runs the model.
    packing, mixing = packing_state(trainer, config)
    if mixing:
        raise _rows_mix(mixing, config)
    facts = {
        "engine": engine.describe_engine(trainer),
        "attention": describe_kernels(model, attention, config.model.dtype, trainer.args.device),
        "weights": _words(weights),
        "updated weights": _words(updated),
        "trained": f"{count.trainable:,} of {count.total:,} parameters",
        "packing": packing,
        "also on": describe_speed(trainer),
    }
    return {name: words for name, words in facts.items() if words}


def _raise_if(problems: list[str]) -> None:
    if listed := [problem for problem in problems if problem]:
        raise TrainingError(
            "The run would not train as its config says: " + "; ".join(listed) + ".",
            remedy="this was found before the first step, and nothing was trained; check"
            " training_arguments and the ACCELERATE_* variables of the cluster's env",
        )


def _rows_mix(problem: str, config: TrainingConfig) -> ConfigError:
    off = "data.packing" if config.data.packing else "performance.padding_free"
    instead = "performance.group_by_length=true, which keeps padding small"
    return ConfigError(
        f"{problem}. Nothing was trained.",
        remedy=f"set {off}=false and {instead}; on GPUs another model.attention may keep rows apart"
        " (flash_attention_2), which the run checks again",
    )


def optimizer_state_words(trainer: Any) -> str:
    """Return the dtypes of what the optimizer keeps of each weight; known after the first step."""
    optimizer = getattr(wrapped(trainer), "optimizer", None) or trainer.optimizer
    for _ in range(4):  # Accelerate's and DeepSpeed's wrappers
        optimizer = getattr(optimizer, "optimizer", optimizer)
    values = (value for state in optimizer.state.values() for value in state.values())
    # A step counter is no state of a weight.
    return _words(
        _dtypes(state for state in values if torch.is_tensor(state) and state.numel() > 1)
    )


def _dtypes(tensors: Any) -> Counter[str]:
    """Return how many elements there are of each type; packed 4-bit weights by their own name."""
    counts: Counter[str] = Counter()
    for tensor in tensors:
        state = getattr(tensor, "quant_state", None)
        name = state.quant_type if state is not None else str(tensor.dtype).removeprefix("torch.")
        counts[name] += max(1, getattr(tensor, "ds_numel", tensor.numel()))
    return counts


def _words(dtypes: Counter[str]) -> str:
    return " and ".join(name for name, _ in dtypes.most_common()) or "unknown"


def _count_problem(
    count: ParameterCount,
    loaded: ParameterCount,
    config: TrainingConfig,
    *,
    is_own_model: bool,
) -> str:
    if count != loaded:
        return (
            f"{loaded.trainable:,} of {loaded.total:,} parameters were to be trained, and"
            f" {count.trainable:,} of {count.total:,} would be"
        )
    if is_own_model:
        return ""
    is_all = count.trainable == count.total
    if config.method.saves == "adapter" and (is_all or not count.trainable):
        return f"method {config.method.type} would train {count.trainable:,} parameters of all"
    return ""


def _dtype_problem(
    weights: Counter[str], updated: Counter[str], config: TrainingConfig, *, is_own_model: bool
) -> str:
    method = config.method
    if isinstance(method, QloraMethod) and method.bnb_4bit_quant_type not in weights:
        return f"qlora was asked for, and no weight is in {method.bnb_4bit_quant_type}"
    if is_own_model:
        return ""
    allowed = {"float32", "bfloat16"} | {getattr(method, "bnb_4bit_quant_type", "float32")}
    if config.model.dtype == "float32":
        allowed -= {"bfloat16"}
    if strange := weights.keys() - allowed:
        return f"model.dtype={config.model.dtype}, and weights are in {', '.join(sorted(strange))}"
    if low := updated.keys() - {"float32"}:
        return f"the optimizer would update weights of {', '.join(sorted(low))}, not of float32"
    return ""


def _packing_problem(dataset: Any, config: TrainingConfig) -> str:
    if not isinstance(dataset, list | tuple) or not dataset:
        return ""
    is_packed = isinstance(dataset[0], Packed)
    if is_packed == config.data.packing:
        return ""
    return f"data.packing={config.data.packing}, and rows are {'' if is_packed else 'not '}packed"


def _attention_problem(actual: str, config: TrainingConfig) -> str:
    configured = config.model.attention
    if configured == "auto" or actual in (configured, "unknown"):
        return ""
    return f"model.attention={configured} was asked for, and the layers use {actual}"


# --- Speed settings that are in force ---


def describe_speed(trainer: Any) -> str:
    """Return the settings that are on, whoever has set them; empty: none."""
    on = {
        "activation checkpointing": has_checkpointing(trainer.model),
        "compiled": is_compiled(trainer),
        "TF32": _on_gpu(trainer) and uses_tf32(),
        "fused loss by Liger": has_fused_loss(trainer.model),
    }
    return ", ".join(name for name, is_on in on.items() if is_on)


def speed_problems(trainer: Any, config: TrainingConfig) -> Iterator[str]:
    """Yield what was asked for and is not in force."""
    performance = config.performance
    if config.parallelism.gradient_checkpointing and not has_checkpointing(trainer.model):
        yield "gradient_checkpointing was asked for, and no layer would recompute its activations"
    if performance.compile and not is_compiled(trainer):
        yield "performance.compile was asked for, and the model is not compiled"
    if performance.tf32 and not uses_tf32():
        yield "performance.tf32 was asked for, and PyTorch would compute in full float32"
    if performance.fused_loss and not has_fused_loss(trainer.model):
        yield "performance.fused_loss was asked for, and the model has kept its own loss"


def has_checkpointing(model: Any) -> bool:
    """Return whether a layer recomputes: Transformers' layers have a mark that they read."""
    return any(
        getattr(module, "gradient_checkpointing", False) is True for module in model.modules()
    )


def is_compiled(trainer: Any) -> bool:
    engine = trainer.model_wrapped
    if hasattr(engine, "_orig_mod") or getattr(engine, "is_compiled", False) is True:
        return True
    # `Module.compile()` and a compilation of single blocks leave the modules as they are.
    return any(
        hasattr(module, "_orig_mod") or getattr(module, "_compiled_call_impl", None) is not None
        for module in trainer.model.modules()
    )


def has_fused_loss(model: Any) -> bool:
    """Return whether Liger's `forward` computes: Accelerate may have wrapped it once more."""
    bare = model.get_base_model() if hasattr(model, "get_base_model") else model
    forwards = (getattr(bare, name, None) for name in ("_original_forward", "forward"))
    return any(
        str(getattr(inspect.unwrap(forward), "__module__", "")).startswith("liger_kernel.")
        for forward in forwards
        if callable(forward)
    )


def packing_state(trainer: Any, config: TrainingConfig) -> tuple[str, str]:
    """Return the journal's entry on joined rows, and the problem with them.

    Asks the model, with its weights where the engine keeps them, so call it on all ranks. Only
    runs with `data.packing` or `performance.padding_free` pay for that.
    """
    name = "data.packing" if config.data.packing else "performance.padding_free"
    if not (config.data.packing or config.performance.padding_free):
        return "off", ""
    model = trainer.accelerator.unwrap_model(trainer.model_wrapped, keep_torch_compile=False)
    exact = config.model.dtype == "float32" and not (_on_gpu(trainer) and uses_tf32())
    try:
        with trainer.accelerator.autocast():
            problem = mixing_problem(model, device=trainer.args.device, is_float32=exact)
    except (TypeError, ValueError) as error:  # A model of the user's own may take no positions.
        problem = f"it does not take rows by their positions ({error})"
    if hasattr(model, "reshard"):  # FSDP keeps the outermost weights whole for a backward pass.
        model.reshard()
    state = "on" if config.data.packing else "off, rows joined without padding"
    if problem is None:
        return f"{state}, not checked (the model returns no finite logits)", ""
    if problem:
        kind = type(getattr(model, "get_base_model", lambda: model)()).__name__
        return state, (
            f"{name}=true does not work with {kind} and attention {attention_names(model)}:"
            f" {problem}"
        )
    return f"{state}, rows do not attend to each other", ""


def attention_names(model: Any) -> str:
    """Return the kernels that the layers dispatch to: each asks its own config at every call."""
    layers = (getattr(module, "config", None) for module in model.modules())
    names = {getattr(config, "_attn_implementation", None) for config in layers}
    return " and ".join(sorted(name for name in names if name)) or "unknown"


def _on_gpu(trainer: Any) -> bool:
    device: torch.device = trainer.args.device
    return device.type != "cpu"


# --- Separation of rows in one sequence ---
# It is found by asking the model itself.
# Transformers tells rows of one sequence apart by positions that start again at 0, and only where
# a model hands its positions on to the attention mask (5.23: Falcon, OPT, Bloom, MPT and gpt-oss
# do not). Rows then attend to each other, without a warning and with a loss that looks right.


_ROW = 8
"""Tokens of each of the two rows."""
_FIRST_ID = 10
"""Ids before it, and those at the end of large vocabularies, often have a meaning of their own."""
_MOST_IDS = 240
_ROUNDING = {True: (1e-3, 1e-3), False: (4e-3, 5e-2)}
"""By whether the model computes in float32: mean differences of logits, in their standard
deviations, that are rounding: between equal rows of one pass, which most kernels compute bit by bit
alike, and of two passes. Of rows that attend to each other at least 0.008 and 0.01 were seen, with
random weights."""


def mixing_problem(model: Any, *, device: torch.device, is_float32: bool = True) -> str | None:
    """Return how the second of two joined rows depends on the first; empty: it does not.

    None: the model returns no finite logits, and so nothing is known. Call it on all ranks alike:
    with sharded weights each pass is a collective. Two passes of a few tokens, without gradients.
    Raises what the model raises.
    """
    first, alternative, second = _rows(_vocabulary(model))
    joined = torch.tensor([[*first, *second], [*alternative, *second]], device=device)
    positions = torch.arange(_ROW, device=device).repeat(2, 2)
    with _evaluating(model):
        together = _logits(model, joined, positions)
        alone = _logits(model, joined[:1, _ROW:], positions[:1, :_ROW])
    if together is None or alone is None or not alone.isfinite().all():
        return None
    scale = float(alone.float().std()) or 1.0
    equal, other_pass = (scale * share for share in _ROUNDING[is_float32])
    behind = together[:, _ROW:]
    # Not "if more": a NaN must not pass.
    if not _distance(behind[0], behind[1]) <= equal:
        return "its logits of a row change with the row that stands before it in the sequence"
    if not _distance(behind[0], alone[0]) <= other_pass:
        return "its logits of a row behind another one are not those of the row alone"
    return ""


def _distance(left: torch.Tensor, right: torch.Tensor) -> float:
    return float((left.float() - right.float()).abs().mean())


def _rows(vocabulary: int) -> tuple[list[int], list[int], list[int]]:
    """Return the first row, another one to put in its place, and the second row."""
    first = _FIRST_ID if vocabulary > 2 * _FIRST_ID else 0
    count = min(vocabulary - first, _MOST_IDS)
    ids = [first + 37 * number % count for number in range(3 * _ROW)]
    return ids[:_ROW], ids[_ROW : 2 * _ROW], ids[2 * _ROW :]


def _vocabulary(model: Any) -> int:
    settings: Any = getattr(model, "config", None)
    if hasattr(settings, "get_text_config"):
        settings = settings.get_text_config()
    return int(getattr(settings, "vocab_size", None) or _MOST_IDS)


def _logits(model: Any, ids: torch.Tensor, positions: torch.Tensor) -> torch.Tensor | None:
    logits = getattr(model(input_ids=ids, position_ids=positions), "logits", None)
    return logits if isinstance(logits, torch.Tensor) and logits.ndim == 3 else None


@contextmanager
def _evaluating(model: Any) -> Iterator[None]:
    """Switch off dropout, which would make equal rows differ."""
    was_training = model.training
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        model.train(was_training)


# --- Attention kernels, as far as they are known before they run ---
# Private: `torch._fused_sdp_choice` (checked on PyTorch 2.13), with which PyTorch itself chooses.
# Where it is missing, the words leave its answer out.


_LENGTH = 128
_PACKAGES = {"flash_attention_2": "flash-attn", "flash_attention_3": "flash-attn-3"}
_CHOICES = {0: "math", 1: "flash", 2: "memory efficient", 3: "cuDNN", 4: "overrideable"}
"""Values of `torch.nn.attention.SDPBackend`, and what PyTorch's documentation calls them."""
_FUSED = ("flash", "memory efficient", "cuDNN")
"""Keep no probabilities: the backward pass computes them once more from queries and keys."""


def describe_kernels(model: Any, names: str, dtype: str, device: torch.device) -> str:
    """Return the kernels of the layers, with what PyTorch would choose for `sdpa`.

    `names`: what the layers' configs say, such as `sdpa`. PyTorch chooses at each call, by shape
    and mask: the choices for a batch without a mask and with one are named.
    """
    if names in _PACKAGES:
        return f"{names} ({_installed(_PACKAGES[names])})"
    if names != "sdpa":
        return names
    choices = sdpa_choices(_config(model), getattr(torch, dtype), device)
    if choices is None:
        return "sdpa"
    plain, masked = choices
    return f"sdpa ({plain})" if plain == masked else f"sdpa ({plain}; {masked} with a mask)"


def kernels(model: Any, names: str, dtype: str, device: torch.device) -> Kernels | None:
    """Return what the kernels compute; None where it is not known."""
    if names == "eager":
        return EAGER
    if names in _PACKAGES:
        return Kernels(*[Kernel("own", recomputes=True)] * 2)
    choices = None
    if names == "sdpa":
        choices = sdpa_choices(_config(model), getattr(torch, dtype), device)
    if choices is None or not set(choices) <= {"math", *_FUSED}:
        return None
    plain, masked = (name in _FUSED for name in choices)
    # PyTorch's math kernel and each kernel with a mask compute the whole square.
    return Kernels(
        plain=Kernel("earlier" if plain else "square", recomputes=plain),
        masked=Kernel("square", recomputes=masked),
    )


def sdpa_choices(config: Any, dtype: torch.dtype, device: torch.device) -> tuple[str, str] | None:
    """Return PyTorch's choices for training with the heads of a config, without and with a mask.

    None: unknown, also where keys and values have different sizes.
    """
    settings = config.get_text_config() if hasattr(config, "get_text_config") else config
    heads = getattr(settings, "num_attention_heads", None)
    hidden = getattr(settings, "hidden_size", None)
    size = getattr(settings, "head_dim", None) or (hidden // heads if heads and hidden else None)
    choose = getattr(torch, "_fused_sdp_choice", None)
    if not heads or not size or choose is None or getattr(settings, "v_head_dim", None):
        return None
    shape = (1, heads, _LENGTH, size)
    query = torch.empty(shape, dtype=dtype, device=device, requires_grad=True)
    mask = torch.ones(1, 1, _LENGTH, _LENGTH, dtype=torch.bool, device=device)
    rates = (getattr(settings, name, None) for name in ("attention_dropout", "attn_pdrop"))
    dropout = max(float(rate or 0.0) for rate in rates)
    try:
        plain = choose(query, query, query, None, dropout, True)
        masked = choose(query, query, query, mask, dropout, False)
    except (RuntimeError, TypeError):
        return None
    return _CHOICES.get(int(plain), "unknown"), _CHOICES.get(int(masked), "unknown")


def _config(model: Any) -> Any:
    bare = model.get_base_model() if hasattr(model, "get_base_model") else model
    return getattr(bare, "config", None)


def _installed(package: str) -> str:
    try:
        return f"{package} {version(package)}"
    except PackageNotFoundError:
        return f"of another package than {package}"
