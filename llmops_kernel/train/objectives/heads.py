"""Models with a head on the last token: rewards from pairs, labels and numbers of texts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

from llmops_kernel.config.counted import counted
from llmops_kernel.config.models.train import TrainingConfig
from llmops_kernel.config.objective_rows import label_names
from llmops_kernel.config.problems import did_you_mean, listed
from llmops_kernel.errors import DataError
from llmops_kernel.metrics.predictions import f1_scores
from llmops_kernel.models.merging import HEAD_FILE
from llmops_kernel.train.collectives import gather
from llmops_kernel.train.data.examples import Group
from llmops_kernel.train.objectives.objective import (
    GROUPS,
    TARGETS,
    Evaluating,
    Objective,
    preferred,
)


def outputs(model: Any, batch: dict[str, Any]) -> torch.Tensor:
    """Return the head's numbers for each sequence, as (sequences, numbers)."""
    inputs = {name: batch[name] for name in ("input_ids", "attention_mask")}
    logits: torch.Tensor = model(**inputs).logits
    return logits.float()


class _Head(Objective):
    """What all heads share: an adapter's folder has no config of its model, so theirs is beside."""

    def write(self, folder: Path, *, hidden_size: int) -> None:
        """Write what the model is loaded with: the number of outputs, and their names."""
        content = json.dumps(self.model_options(), indent=2, ensure_ascii=False)
        (folder / HEAD_FILE).write_text(content + "\n")


class Reward(_Head):
    """One number for an answer: the Bradley-Terry loss, arxiv.org/abs/2009.01325, section 3.4."""

    figures = ("reward_margin", "reward_accuracy", "reward_chosen", "reward_rejected")

    def model_options(self) -> dict[str, Any]:
        return {"num_labels": 1, "pad_token_id": self.pad_token_id}

    def terms(self, model: Any, batch: dict[str, Any]) -> torch.Tensor:
        is_row = batch[GROUPS][:, 1]
        chosen, rejected = outputs(model, batch).view(-1, 2).unbind(-1)
        margin = chosen - rejected
        losses = -F.logsigmoid(margin)
        if weight := self.settings.center_rewards_coefficient:
            losses = losses + weight * (chosen + rejected) ** 2
        self.add(is_row, margin, preferred(margin), chosen, rejected)
        return (losses * is_row).sum().reshape(1)


class Regress(_Head):
    """Numbers of a text: the mean squared error."""

    size = 1
    """Numbers of a row."""

    def prepare(self, train: Sequence[Group], held_out: Sequence[Group]) -> None:
        """Find how many numbers a row has. Raises DataError."""
        self.size = len(self.target(train[0]))
        for row in (*train, *held_out):
            if len(numbers := self.target(row)) != self.size:
                raise DataError(
                    f"Row {row.number} has {counted(len(numbers), 'number')} as its label, and"
                    f" others have {self.size}.",
                    remedy="give each row as many numbers",
                )

    def target(self, row: Group) -> list[float]:
        values = row.target if isinstance(row.target, list) else [row.target]
        try:
            return [float(value) for value in values]
        except (TypeError, ValueError) as error:
            raise DataError(
                f"Row {row.number}: the label {row.target!r:.60} is not a number.",
                remedy="write a number, or set objective.type=classify for names",
            ) from error

    def model_options(self) -> dict[str, Any]:
        return {
            "num_labels": self.size,
            "problem_type": "regression",
            "pad_token_id": self.pad_token_id,
        }

    def terms(self, model: Any, batch: dict[str, Any]) -> torch.Tensor:
        errors = (outputs(model, batch) - batch[TARGETS]) ** 2
        return (errors.mean(-1) * batch[GROUPS][:, 1]).sum().reshape(1)

    def evaluate(
        self, model: Any, batches: Sequence[Sequence[Group]], collate: Any, step: Evaluating
    ) -> dict[str, float]:
        metrics = super().evaluate(model, batches, collate, step)
        return metrics | {"eval_rmse": metrics["eval_loss"] ** 0.5} if metrics else metrics


class Classify(_Head):
    """The label of a text by cross entropy, or any number of labels, each by its own."""

    figures = ("accuracy",)

    def __init__(self, config: TrainingConfig, pad_token_id: int) -> None:
        super().__init__(config, pad_token_id)
        self.names: list[str] = list(self.settings.labels)
        self._answers: list[tuple[list[int], list[int]]] = []

    def prepare(self, train: Sequence[Group], held_out: Sequence[Group]) -> None:
        """Find the names of the labels. Raises DataError for one that is not among them."""
        if not self.names:
            self.names = sorted({name for row in train for name in self._labels(row)})
        if len(self.names) < 2:
            raise DataError(
                f"The rows have only the label {', '.join(self.names)}.",
                remedy="a classifier needs at least two labels, in objective.labels or in the rows",
            )
        for row in (*train, *held_out):
            for name in self._labels(row):
                if name not in self.names:
                    raise DataError(
                        f"Row {row.number} has the label {name!r}, which"
                        + (
                            " objective.labels does not name."
                            if self.settings.labels
                            else " no training row has."
                        ),
                        remedy=did_you_mean(name, self.names) or f"known: {listed(self.names)}",
                    )

    def _labels(self, row: Group) -> list[str]:
        """Return the labels of a row. Raises DataError where it has not exactly one."""
        names = label_names(row.target)
        if len(names) != 1 and not self.settings.multi_label:
            raise DataError(
                f"Row {row.number} has {counted(len(names), 'label')}.",
                remedy="give one, or set objective.multi_label=true",
            )
        return names

    def target(self, row: Group) -> Any:
        """Return the number of its label, or 0 or 1 for each label."""
        names = self._labels(row)
        if self.settings.multi_label:
            return [float(name in names) for name in self.names]
        return self.names.index(names[0])

    def model_options(self) -> dict[str, Any]:
        numbers = dict(enumerate(self.names))
        kind = "multi_label" if self.settings.multi_label else "single_label"
        return {
            "num_labels": len(self.names),
            "pad_token_id": self.pad_token_id,  # By it the head finds the last token.
            "id2label": numbers,
            "label2id": {name: number for number, name in numbers.items()},
            "problem_type": f"{kind}_classification",
        }

    def terms(self, model: Any, batch: dict[str, Any]) -> torch.Tensor:
        logits, targets, is_row = outputs(model, batch), batch[TARGETS], batch[GROUPS][:, 1]
        if self.settings.multi_label:
            losses = F.binary_cross_entropy_with_logits(logits, targets, reduction="none").mean(-1)
            answers = (logits > 0).float()
            is_right = (answers == targets).all(-1)
        else:
            losses = F.cross_entropy(logits, targets, reduction="none")
            answers = F.one_hot(logits.argmax(-1), logits.shape[-1])
            targets = F.one_hot(targets, logits.shape[-1])
            is_right = (answers * targets).sum(-1) > 0
        self.add(is_row, is_right.float())
        if not torch.is_grad_enabled():
            rows = zip(answers.tolist(), targets.tolist(), is_row.tolist(), strict=True)
            self._answers += [(answer, target) for answer, target, counts in rows if counts]
        return (losses * is_row).sum().reshape(1)

    def evaluate(
        self, model: Any, batches: Sequence[Sequence[Group]], collate: Any, step: Evaluating
    ) -> dict[str, float]:
        """Return loss, accuracy and F1: the mean of all labels, and of each if there are few."""
        self._answers = []
        metrics = super().evaluate(model, batches, collate, step)
        answers = [pair for share in gather(self._answers) for pair in share]
        if not answers:
            return metrics
        pairs = ((_places(answer), _places(target)) for answer, target in answers)
        scores = f1_scores(pairs, range(len(self.names)))
        metrics["eval_macro_f1"] = sum(scores) / len(scores)
        if len(self.names) <= _MOST_NAMED:
            named = zip(self.names, scores, strict=True)
            metrics |= {f"eval_f1_{name}": score for name, score in named}
        return metrics


_MOST_NAMED = 12


def _places(row: Sequence[float]) -> set[int]:
    return {place for place, value in enumerate(row) if value}
