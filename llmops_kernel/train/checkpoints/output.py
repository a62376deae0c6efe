"""Writes the output of a run, and compares it with the model that was trained."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import yaml
from safetensors import SafetensorError

from llmops_kernel.config.counted import counted
from llmops_kernel.config.models.train import TrainingConfig
from llmops_kernel.driver import checkpoint
from llmops_kernel.driver.checkpoint import latest
from llmops_kernel.driver.disk import is_disk_full, reason
from llmops_kernel.driver.storage import Bucket
from llmops_kernel.errors import ModelError, StoreError, TrainingError
from llmops_kernel.hardware.load import memory
from llmops_kernel.metrics.events import OutputEvent, WarningEvent
from llmops_kernel.models.answer_ends import save_generation_config
from llmops_kernel.models.merging import (
    COMPUTED,
    EXACT,
    ROUNDED,
    difference,
    logits_of,
    make_portable,
    merged,
    portable_name,
    probe,
)
from llmops_kernel.store.outputs import announced
from llmops_kernel.tables.files import open_url
from llmops_kernel.train.context import WorkerContext
from llmops_kernel.train.hooks import Hooks
from llmops_kernel.train.model.load import count_bytes, load_model, load_result
from llmops_kernel.train.model.origin import Origin, loading_alone
from llmops_kernel.train.objectives.objective import Objective
from llmops_kernel.train.parallelism.strategy import strategy

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
    options: Mapping[str, Any] | None = None
    """What the objective needs of the model."""
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
        with loading_alone():
            if not is_adapter:
                return load_result(folder, self.origin.config)
            weights, config = self.origin.weights, self.origin.config
            return load_model(weights, config, Hooks(), adapter=folder, options=self.options)

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


# --- Writes the output of a run: adapter or weights, tokenizer, config and model card ---


def save(
    trainer: Any,
    *,
    tokenizer: Any,
    config: TrainingConfig,
    context: WorkerContext,
    figures: Mapping[str, Any],
    trained: Trained,
    origin: Origin,
    objective: Objective | None = None,
) -> list[str]:
    """Write the output, and return how each part was compared with what was trained.

    Call it on all workers (ZeRO-3 gathers weights); rank 0 writes. Raises TrainingError,
    StoreError.
    """
    folder = context.folder / "output"
    strategy(config).prepare_save(trainer)
    # Collective under ZeRO-3 and FSDP, so on every rank.
    trainer.save_model(str(folder))
    if not context.is_main:
        return []
    (folder / "training_args.bin").unlink(missing_ok=True)  # a pickle nobody should load
    save_generation_config(trainer.accelerator.unwrap_model(trainer.model_wrapped), folder)
    artifact = config.method.saves
    writer = _OutputWriter(trainer, tokenizer, origin, context, trained, objective)
    compared = [writer.finish(folder, artifact=artifact)]
    resolved = yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False)
    (folder / "config.train.yaml").write_text(resolved)
    card = model_card(config, figures, run_id=context.run_id, base=writer.base)
    (folder / "README.md").write_text(card)
    about = writer.about(artifact, compared[0])
    _store(folder, config.output.url, context.run_id, about=about, context=context)
    if config.output.merge_adapter and config.method.saves == "adapter":
        merged_folder = context.folder / "output-merged"
        compared.append(writer.merge(merged_folder, adapter=folder))
        name, about = f"{context.run_id}-merged", writer.about("merged_model", compared[1])
        _store(merged_folder, config.output.url, name, about=about, context=context)
    return compared


@dataclass(frozen=True)
class _OutputWriter:
    """Writes the parts of a result's folder: a tokenizer, files for any machine, a comparison."""

    trainer: Any
    tokenizer: Any
    origin: Origin
    context: WorkerContext
    trained: Trained
    objective: Objective | None

    @property
    def base(self) -> str:
        """Return the model's name on any machine, or the folder where this run has merged one."""
        weights = self.origin.weights
        merged_here = self.origin.is_merged
        return weights if merged_here else portable_name(self.origin.config.model.id, weights)

    def finish(self, folder: Path, *, artifact: str, merged_from: Path | None = None) -> str:
        self.tokenizer.save_pretrained(folder)
        make_portable(folder, base=self.base, source=self.origin.weights)
        accelerator, device = self.trainer.accelerator, self.trainer.args.device
        options = None
        if self.objective is not None:
            options = self.objective.model_options()
            model = accelerator.unwrap_model(self.trainer.model_wrapped)
            self.objective.write(folder, hidden_size=model.config.get_text_config().hidden_size)
        comparison = Comparison(
            self.trained, self.origin, self.context, device, accelerator.autocast, options
        )
        return comparison.check(folder, artifact=artifact, merged_from=merged_from)

    def merge(self, folder: Path, *, adapter: Path) -> str:
        model = self.trainer.accelerator.unwrap_model(self.trainer.model_wrapped)
        merged(model).save_pretrained(folder)
        return self.finish(folder, artifact="merged_model", merged_from=adapter)

    def about(self, artifact: str, compared: str) -> dict[str, Any]:
        """Return fields of the event that announces it."""
        fields: dict[str, Any] = {"what": artifact, "compared": compared}
        if artifact == "adapter" and (self.origin.adapter is not None or self.origin.is_merged):
            model = self.origin.config.model
            fields |= {"base": model.id, "base_revision": model.revision}
        return fields


def _store(
    folder: Path, url: str | None, name: str, *, about: Mapping[str, Any], context: WorkerContext
) -> None:
    """Copy to the run's bucket, if it has one, and to output.url; announce the final location.

    Raises StoreError where one of them refuses it: what there is by then is announced before.
    """
    size = checkpoint.size_bytes(folder)
    kept_at = str(folder) if context.is_kept else ""
    published = ""
    try:
        if context.bucket is not None:
            kept_at = _keep(folder, context.bucket)
        if url is not None:
            published = _publish(folder, url, name)
    finally:
        context.emit(
            OutputEvent(path=published, size_bytes=size, **about)
            if published
            else announced(
                folder, size_bytes=size, journal=context.visible, kept_at=kept_at, **about
            )
        )


def _keep(folder: Path, bucket: Bucket) -> str:
    """Copy to the run's bucket and return the URL there."""
    try:
        bucket.put(folder, folder.name)
    except StoreError as error:
        raise StoreError(
            f"The result could not be stored: {error.message}",
            remedy=f"{error.remedy}, then `llmops retry`; this result is in {folder} on the node",
        ) from error
    return bucket.url_of(folder.name)


def _publish(folder: Path, url: str, name: str) -> str:
    """Copy below output.url and return the new path; the run's folder keeps its copy."""
    target = f"{url.rstrip('/')}/{name}"
    try:
        if "://" not in url:
            shutil.copytree(folder, Path(target).expanduser(), dirs_exist_ok=True)
            # A result inside a workspace must not be uploaded with its next submission.
            (Path(target).expanduser() / ".llmopsignore").write_text("*\n")
        else:
            filesystem, path = open_url(target)
            filesystem.put(f"{folder}/", f"{path}/", recursive=True)
    except Exception as error:  # Each kind of store has errors of its own.
        raise _not_published(error, folder, target) from error
    return target


def _not_published(error: Exception, folder: Path, target: str) -> StoreError:
    if is_disk_full(error):
        return StoreError(
            f"The disk of output.url is full: {target} is incomplete.",
            remedy=f"free some space there, then copy the complete result from {folder}",
        )
    return StoreError(
        f"The result could not be written to {target}: {reason(error)}",
        remedy=f"check output.url and the credentials, then copy the result from {folder}",
    )


def model_card(
    config: TrainingConfig, figures: Mapping[str, Any], *, run_id: str, base: str
) -> str:
    """Return a small model card with the measured figures, in the Hub's format.

    `base`: name of the base model on any machine.
    """
    objective = config.objective
    library = "peft" if config.method.saves == "adapter" else "transformers"
    front = {
        "base_model": base,
        "library_name": "sentence-transformers" if objective.output == "embedding" else library,
        "tags": ["llmops-kernel", config.method.type, objective.type],
    }
    rows = "\n".join(f"| {name} | {_cell(value)} |" for name, value in figures.items())
    optimizer, training = config.optimizer, config.training
    return (
        f"---\n{yaml.safe_dump(front, sort_keys=False)}---\n\n# {config.name}\n\n"
        f"{base}, trained with {config.method.type} on {_trained_on(config)}{_learned(config)}"
        f" (run `{run_id}`).\n\n"
        f"Learning rate {optimizer.learning_rate:g} ({optimizer.lr_scheduler_type}), global batch"
        f" size {training.global_batch_size}, {config.parallelism.strategy} on"
        f" {counted(config.parallelism.num_workers, 'worker')}, {config.model.dtype}."
        " The whole config is in `config.train.yaml`."
        f"\n\n| figure | measured |\n|---|---|\n{rows}\n"
    )


def _learned(config: TrainingConfig) -> str:
    objective = config.objective
    return f", objective {objective.type}, which {objective.summary}" if objective.rows else ""


def _trained_on(config: TrainingConfig) -> str:
    return ", ".join(
        f"`{_portable_path(source.path)}`"
        + ("" if source.weight == 1 else f" (weight {source.weight:g})")
        for source in config.data.sources
    )


def _portable_path(path: str) -> str:
    """Return a path inside the workspace, a URL or a hub id as it is; else the file's own name."""
    return Path(path).name if Path(path).is_absolute() or path.startswith("~") else path


def _cell(value: Any) -> str:
    if value is None:
        return "–"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
