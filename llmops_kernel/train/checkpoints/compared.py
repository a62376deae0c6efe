"""Compares a written result with the model that was trained, before the run succeeds.

A few tokens' logits of the model in memory are kept; then what was written is loaded as its reader
will load it, and has to give the same.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError

from llmops_kernel.driver.checkpoint import latest
from llmops_kernel.errors import ModelError, TrainingError
from llmops_kernel.hardware.load import memory
from llmops_kernel.metrics.events import WarningEvent
from llmops_kernel.models.merging import COMPUTED, EXACT, ROUNDED, difference, logits_of, probe
from llmops_kernel.train.context import WorkerContext
from llmops_kernel.train.hooks import Hooks
from llmops_kernel.train.model.load import count_bytes, load_model, load_result
from llmops_kernel.train.model.origin import Origin

_NOT_LOADED = (
    ModelError,
    SafetensorError,
    OSError,
    ImportError,
    ValueError,
    RuntimeError,
    KeyError,
)
_NEEDED = 1.3
"""Factor of the model's size, while it is loaded once more."""


@dataclass(frozen=True)
class Trained:
    """The logits of the model in memory."""

    ids: list[int]
    logits: Any
    num_bytes: int
    why_not: str = ""
    """Reason why nothing can be compared; empty: it can."""

    @classmethod
    def of(cls, trainer: Any, rows: Sequence[Any], *, is_own_model: bool, what: str) -> Trained:
        """Ask the model. Call it on all workers: a collective where its weights are sharded.

        `is_own_model`: the hook `build_model` made it, which only says what it makes.
        """
        model = trainer.accelerator.unwrap_model(trainer.model_wrapped)
        model = getattr(model, "_orig_mod", model)  # Not compiled for this one shape.
        config = getattr(model, "config", None)
        is_known = not is_own_model or (
            what == "model" and type(model).__module__.startswith("transformers.")
        )
        if config is None or not is_known:
            return cls([], None, 0, "the hook build_model made the model")
        vocabulary = config.get_text_config().vocab_size
        ids = probe([row.input_ids for row in rows], vocabulary=vocabulary)
        with trainer.accelerator.autocast():
            return cls(ids, logits_of(model, ids, trainer.args.device), count_bytes(model))


@dataclass(frozen=True)
class Comparison:
    """Compares each written folder with what was trained; on rank 0 only."""

    trained: Trained
    origin: Origin
    context: WorkerContext
    device: torch.device
    autocast: Any
    """Returns the context in which the model was asked."""
    memory: Callable[[], Iterable[tuple[int, int]]] = memory
    """Returns free and total bytes of the machine, and of a container."""

    def check(self, folder: Path, *, artifact: str, merged_from: Path | None = None) -> str:
        """Return words on the comparison. Raises TrainingError where the result is another model.

        `merged_from`: the adapter's folder, of merged weights.
        """
        begin = time.perf_counter()
        device = None if self.trained.why_not else self._pick_device()
        if device is None:
            return self._not_compared(artifact, self.trained.why_not or self._no_memory())
        try:
            model = self._loaded(folder, is_adapter=artifact == "adapter").to(device)
            with self.autocast():
                distance = difference(
                    self.trained.logits, logits_of(model, self.trained.ids, device)
                )
        except (MemoryError, torch.OutOfMemoryError) as error:
            return self._not_compared(artifact, f"out of memory: {str(error).splitlines()[0]}")
        except _NOT_LOADED as error:
            if self.origin.config.model.trust_remote_code:
                return self._not_compared(
                    artifact, f"the model's own code cannot load it here: {error}"
                )
            raise self._wrong(folder, f"it cannot be loaded: {error}", merged_from) from error
        allowed = self._allowed(device, is_merged=merged_from is not None)
        if distance > allowed:
            raise self._wrong(
                folder,
                f"loaded again, its logits are {distance:.2%} away from those of the model that was"
                f" trained, and {allowed:.1%} are allowed for {self.origin.config.model.dtype}",
                merged_from,
            )
        return (
            f"{artifact.replace('_', ' ')} compared with what was trained: logits of"
            f" {len(self.trained.ids)} tokens differ by {distance:.1e} of their size"
            f" ({time.perf_counter() - begin:.2f} s)"
        )

    def _loaded(self, folder: Path, *, is_adapter: bool) -> Any:
        with _alone():
            if not is_adapter:
                return load_result(folder, self.origin.config)
            return load_model(self.origin.weights, self.origin.config, Hooks(), adapter=folder)

    def _pick_device(self) -> torch.device | None:
        """Return where the model fits once more: beside the trained one, or in host memory."""
        needed = self.trained.num_bytes * _NEEDED
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
            if torch.cuda.mem_get_info(self.device)[0] > needed:
                return self.device
            if self.origin.config.method.load:  # 4-bit weights are packed for this device.
                return None
        # Where a container's limit is reached its kernel ends the process, without a word.
        free = min((free for free, _ in self.memory()), default=0)
        return torch.device("cpu") if free > needed else None

    def _no_memory(self) -> str:
        return f"a second copy of its {self.trained.num_bytes / 1e9:,.1f} GB does not fit in memory"

    def _allowed(self, device: torch.device, *, is_merged: bool) -> float:
        config = self.origin.config
        if config.model.dtype != "float32":
            return ROUNDED if is_merged else COMPUTED
        is_exact = device == self.device and not config.performance.tf32
        return EXACT if is_exact else COMPUTED

    def _not_compared(self, artifact: str, why: str) -> str:
        summary = f"{artifact.replace('_', ' ')} not compared with what was trained: {why}"
        self.context.emit(
            WarningEvent(
                message=f"The {summary}.",
                remedy="score a few rows with it, and compare with the run's evaluation",
            )
        )
        return summary

    def _wrong(self, folder: Path, why: str, merged_from: Path | None) -> TrainingError:
        """Set the folder aside, so that nothing takes it for a result."""
        aside = folder.with_name(f"{folder.name}-rejected")
        shutil.rmtree(aside, ignore_errors=True)  # Of an earlier attempt.
        folder.rename(aside)
        checkpoint = latest(self.context.folder / "checkpoints")
        if merged_from is not None:
            remedy = f"the adapter in {merged_from} was compared and is as it was trained"
        elif checkpoint is not None:
            remedy = f"the checkpoint {checkpoint.path} is untouched"
        else:
            remedy = "no checkpoint was asked for (checkpoint.every_steps)"
        return TrainingError(
            f"The written result is not the model that was trained: {why}. It is in {aside}.",
            remedy=f"{remedy}; report it with the model's name and this config",
        )


@contextmanager
def _alone() -> Iterator[None]:
    """Load on this worker alone: with ZeRO-3's settings `from_pretrained` asks all of them."""
    from transformers.integrations import deepspeed

    reference = deepspeed._hf_deepspeed_config_weak_ref
    settings = reference() if reference is not None else None
    if settings is not None:
        deepspeed.unset_hf_deepspeed_config()
    try:
        yield
    finally:
        if settings is not None:
            deepspeed.set_hf_deepspeed_config(settings)
