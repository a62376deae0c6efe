"""The interface of an objective on the workers, and what all of them share: batches and sums."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, ClassVar

import torch
import torch.distributed as dist

from llmops_kernel.config.models.objectives import ObjectiveConfig
from llmops_kernel.config.models.train import TrainingConfig
from llmops_kernel.train.collectives import is_group
from llmops_kernel.train.data.collate import COUNTS, KEPT, Collator
from llmops_kernel.train.data.examples import IGNORED, Group, each_part

GROUPS = "llmops_groups"
"""Batch key of an int64 tensor (rows, 2): sequences of the row, and whether it counts."""
TARGETS = "llmops_targets"
"""Batch key of the rows' targets."""


def objective_of(config: TrainingConfig, pad_token_id: int) -> Objective | None:
    """Return the worker's side of the config's objective; None for the model's own loss."""
    chosen: ObjectiveConfig = config.objective
    name = chosen.worker_side
    return resolve_name(name)(config, pad_token_id) if name else None


def label_logits(
    model: Any, batch: dict[str, Any]
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return float32 logits (labels, vocabulary), the labels, and the sequence of each label.

    Logits are computed at labels only where the batch names the positions (`collate.at_labels`).
    """
    inputs = {name: batch[name] for name in ("input_ids", "attention_mask")}
    if KEPT in batch:
        logits = model(**inputs, **{KEPT: batch[KEPT]}).logits[:-1].float()
        return logits, batch["labels"][1:], batch[KEPT].nonzero()[:-1, 0]
    logits, targets = model(**inputs).logits[:, :-1], batch["labels"][:, 1:]
    is_label = targets != IGNORED
    return logits[is_label].float(), targets[is_label], is_label.nonzero()[:, 0]


def preferred(margin: torch.Tensor) -> torch.Tensor:
    """Return 1 where the chosen is ahead, 0 where the rejected is, and NaN where neither is."""
    return torch.where(margin == 0, torch.nan, (margin > 0).to(margin.dtype))


class Objective:
    """What a training learns: its batches, its loss, its figures and what it leaves with a result.

    The loss of a step is a sum of terms. Each is a sum over rows or tokens of all micro batches of
    all workers, divided by how many there are: so it does not depend on how they are spread.
    """

    figures: ClassVar[tuple[str, ...]] = ()
    """Names of numbers that are means over the rows of a step, and of an evaluation."""

    def __init__(self, config: TrainingConfig, pad_token_id: int) -> None:
        self.config, self.pad_token_id = config, pad_token_id
        self.settings: Any = config.objective
        self.reference: Any = None
        self._sums: torch.Tensor | None = None

    # --- Before the training ---

    def prepare(self, train: Sequence[Group], held_out: Sequence[Group]) -> None:
        """Look at all rows, before the model is loaded. Raises DataError."""

    def model_options(self) -> dict[str, Any]:
        """Return what `from_pretrained` needs besides the class of the model."""
        return {}

    def check_model(self, model: Any) -> None:
        """Raise ConfigError for what the config asks for and the loaded model does not have."""

    def compare_with(self, reference: Any) -> None:
        """Take the model as it was (`reference.Reference`), before the first batch is made."""
        self.reference = reference

    def write(self, folder: Path, *, hidden_size: int) -> None:
        """Write what others need to use the result, beside its weights."""

    # --- A batch ---

    def target(self, row: Group) -> Any:
        """Return the row's target as a number, or as a list of numbers; None: not in a batch."""
        return row.target

    def add_to_batch(self, batch: dict[str, Any], rows: Sequence[Group], collate: Any) -> None:
        """Add what the loss needs besides the rows' sequences and targets."""

    def counts(self, batch: dict[str, Any]) -> torch.Tensor:
        """Return what each term of the loss is divided by, of one micro batch, as float64."""
        return batch[GROUPS][:, 1].sum().double().reshape(1)

    def terms(self, model: Any, batch: dict[str, Any]) -> torch.Tensor:
        """Return the terms of the loss as sums over a micro batch.

        One forward pass of `model` with gradients. Adds its figures by `add`.
        """
        raise NotImplementedError

    def add(self, is_row: torch.Tensor, *values: torch.Tensor) -> None:
        """Add a micro batch to the figures: for each a value a row; NaN where a row has none."""
        stacked = torch.stack([value.detach().double() for value in values])
        is_counted = is_row.bool() & ~stacked.isnan()
        sums = torch.stack([stacked.nan_to_num() * is_counted, is_counted.double()]).sum(-1)
        self._sums = sums if self._sums is None else self._sums + sums

    def take(self, device: torch.device) -> dict[str, float]:
        """Return the means of the figures over all workers since the last call. A collective."""
        if not self.figures:
            return {}
        sums, self._sums = self._sums, None
        if sums is None:
            sums = torch.zeros(2, len(self.figures), dtype=torch.float64, device=device)
        if is_group():
            dist.all_reduce(sums)
        totals, numbers = sums.tolist()
        return {
            name: total / count
            for name, total, count in zip(self.figures, totals, numbers, strict=True)
            if count
        }

    # --- An evaluation ---

    def evaluate(
        self, model: Any, batches: Sequence[Sequence[Group]], collate: Any, step: Evaluating
    ) -> dict[str, float]:
        """Return the metrics of held-out rows; all workers get the same.

        `batches`: of this worker, as many as of each other; an empty one has a blank row.
        """
        kept, self._sums = self._sums, None
        totals = torch.zeros(0, dtype=torch.float64, device=step.device)
        for rows, batch in step.collated(batches, collate):
            count = self.counts(batch)
            values = torch.stack([self.terms(model, batch).double(), count.to(step.device)])
            totals = values if not len(totals) else totals + values
            step.done(len(rows))
        if is_group():
            dist.all_reduce(totals)
        metrics = {f"eval_{name}": value for name, value in self.take(step.device).items()}
        self._sums = kept
        if (totals[1] == 0).any():
            return metrics
        return {"eval_loss": float((totals[0] / totals[1]).sum()), **metrics}


@dataclass(frozen=True)
class Evaluating:
    """How a worker evaluates: on what device, and whom it tells how many rows are done."""

    device: torch.device
    done: Callable[[int], None]
    blank: Group
    """A row in which nothing counts."""

    def collated(
        self, batches: Sequence[Sequence[Group]], collate: Any
    ) -> Iterator[tuple[Sequence[Group], dict[str, Any]]]:
        """Yield each batch with its tensors on the device."""
        for rows in batches:
            batch = collate(rows or [self.blank])
            batch.pop(COUNTS)
            yield rows, on_device(batch, self.device)


def on_device(batch: dict[str, Any], device: torch.device) -> dict[str, Any]:
    """Return the batch with all of its tensors on a device."""
    return {
        name: on_device(value, device) if isinstance(value, dict) else value.to(device)
        for name, value in batch.items()
    }


@dataclass(frozen=True)
class GroupCollator:
    """Makes a batch of the sequences of all rows, and of what an objective needs besides."""

    objective: Objective
    sequences: Collator

    def __call__(self, rows: Sequence[Group]) -> dict[str, Any]:
        batch = self.sequences(each_part(rows))
        batch[GROUPS] = torch.tensor([[len(row.lengths), not row.is_blank] for row in rows])
        targets = [self.objective.target(row) for row in rows]
        if targets[0] is not None:
            batch[TARGETS] = torch.tensor(targets)
        self.objective.add_to_batch(batch, rows, self.sequences)
        return batch
