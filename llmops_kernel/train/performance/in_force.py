"""Check that the speed settings of a config are in force in what will train."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from llmops_kernel.config.models.train import TrainingConfig
from llmops_kernel.train.measure.device import uses_tf32


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
