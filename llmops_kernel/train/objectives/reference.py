"""The model as it was before the training, which preferences are compared with."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import TrainerCallback

from llmops_kernel.errors import TrainingError
from llmops_kernel.metrics.events import PhaseEvent
from llmops_kernel.train.collectives import gather
from llmops_kernel.train.context import WorkerContext
from llmops_kernel.train.data.examples import Group
from llmops_kernel.train.evaluation import RowCount
from llmops_kernel.train.objectives.objective import Evaluating
from llmops_kernel.train.objectives.preference import REFERENCE, log_probs

_FILE = "llmops_reference.npz"


class Reference:
    """The model with its adapter turned off: no second copy of it is needed."""

    def __init__(self, unwrap: Callable[[Any], Any]) -> None:
        """`unwrap` returns the model inside of an engine."""
        self._unwrap = unwrap

    def log_probs(self, model: Any, batch: dict[str, Any]) -> torch.Tensor:
        """Return what the reference gives the labels of each sequence, without gradients."""
        bare = self._unwrap(model)
        return self._asked(bare, batch, bare.disable_adapter())

    def of_policy(self, model: Any, batch: dict[str, Any]) -> torch.Tensor:
        """Return what the model that is trained gives them, without gradients."""
        return self._asked(self._unwrap(model), batch, nullcontext())

    def of_rows(self, rows: Sequence[Group]) -> torch.Tensor | None:
        """Return what is known of rows before they are asked: nothing."""
        return None

    def _asked(
        self, bare: Any, batch: dict[str, Any], context: AbstractContextManager[Any]
    ) -> torch.Tensor:
        was_training = bare.training
        bare.eval()
        try:
            with torch.no_grad(), context:
                return log_probs(bare, batch)[0]
        finally:
            bare.train(was_training)


class Computed(Reference):
    """Log-probabilities that were computed before the first step, and are kept in checkpoints.

    For models without an adapter, or with one that was trained before: after a step nothing is left
    of what they were.
    """

    def __init__(self, unwrap: Callable[[Any], Any]) -> None:
        super().__init__(unwrap)
        self._known: dict[bytes, np.ndarray] = {}

    def log_probs(self, model: Any, batch: dict[str, Any]) -> torch.Tensor:
        known: torch.Tensor = batch[REFERENCE]
        return known.flatten()

    def of_rows(self, rows: Sequence[Group]) -> torch.Tensor:
        """Return them as (rows, sequences); 0 for blank rows."""
        none = np.zeros(len(rows[0].lengths), np.float32)
        return torch.from_numpy(np.stack([self._known.get(_key(row), none) for row in rows]))

    def compute(
        self,
        model: Any,
        batches: Sequence[Sequence[Group]],
        collate: Callable[[Sequence[Group]], dict[str, Any]],
        step: Evaluating,
    ) -> None:
        """Ask the model as it is. Call it on all workers, each with its share of the rows."""
        mine: dict[bytes, np.ndarray] = {}
        for rows, batch in step.collated(batches, collate):
            found = self.of_policy(model, batch).float().cpu().numpy()
            width = len((rows or [step.blank])[0].lengths)
            mine |= {
                _key(row): values
                for row, values in zip(rows, found.reshape(-1, width), strict=False)
            }
            step.done(len(rows))
        for share in gather(mine):
            self._known |= share

    def save(self, checkpoint: Path) -> None:
        keys = np.frombuffer(b"".join(self._known), np.uint8).reshape(len(self._known), -1)
        np.savez(checkpoint / _FILE, keys=keys, values=np.stack([*self._known.values()]))

    def load(self, checkpoint: Path) -> bool:
        """Return whether a checkpoint has them."""
        try:
            with np.load(checkpoint / _FILE, allow_pickle=False) as arrays:
                pairs = zip(arrays["keys"], arrays["values"], strict=True)
                self._known = {key.tobytes(): values for key, values in pairs}
        except (OSError, ValueError, KeyError):
            return False
        return True


def _key(row: Group) -> bytes:
    """Return a digest of the row's tokens: workers and resumed runs have rows in other orders."""
    content = np.asarray([*row.lengths, *row.input_ids], np.int32).tobytes()
    return hashlib.blake2b(content, digest_size=16).digest()


class KeepReference(TrainerCallback):
    """Computes a reference before the first step, or takes that of the checkpoint."""

    def __init__(
        self,
        reference: Computed,
        *,
        context: WorkerContext,
        shares: Sequence[Sequence[Group]],
        collate: Callable[[Sequence[Group]], dict[str, Any]],
        blank: Group,
        resume: Path | None,
        accelerator: Any,
    ) -> None:
        self._reference, self._context, self._resume = reference, context, resume
        self._shares, self._collate, self._blank = shares, collate, blank
        self._accelerator = accelerator

    def on_train_begin(
        self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any
    ) -> None:
        """Compute it with the model as the engine has it; a resumed run has trained already."""
        if self._resume is not None:
            if not self._reference.load(self._resume):
                raise TrainingError(
                    f"{self._resume.name} lacks the log-probabilities of the model as it was before"
                    " the training, which objective.type compares with.",
                    remedy="start from the beginning: `llmops resubmit`",
                )
            return
        self._context.emit(PhaseEvent(name="reference", state="begin"))
        progress = RowCount(self._context, total=sum(map(len, self._shares)), unit="rows")
        with self._accelerator.autocast():
            step = Evaluating(args.device, progress.add, self._blank)
            self._reference.compute(model, self._shares, self._collate, step)
        self._context.emit(PhaseEvent(name="reference", state="end"))

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Add it to a checkpoint before that is marked complete."""
        if self._context.is_main:
            self._reference.save(Path(args.output_dir) / f"checkpoint-{state.global_step}")
