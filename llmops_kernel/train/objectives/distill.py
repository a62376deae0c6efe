"""Distillation: a student learns the probabilities that a teacher gave the tokens of answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from llmops_kernel.config.models.train import TrainingConfig
from llmops_kernel.errors import ConfigError, DataError
from llmops_kernel.train.data.examples import Group
from llmops_kernel.train.objectives.objective import Objective, label_logits

_TOKEN_IDS = "llmops_teacher_tokens"
"""Batch key of int64 (labels, k): the teacher's most probable tokens at each label, in order."""
_LOG_PROBS = "llmops_teacher_log_probs"
"""Batch key of float32 (labels, k + 1): their log-probabilities, and that of all other tokens."""
_LEAST = 1e-7
"""Least probability of all other tokens: what float32 leaves of 1 - the sum of the k."""


class Distill(Objective):
    """The divergence from a teacher of which the k most probable tokens of each place are known.

    Both distributions are of k + 1 outcomes: these tokens, and any other token. So the student
    also learns how probable the others are together; with the k renormalised to 1 instead, it
    could give any probability to tokens that the teacher thinks impossible. By the data processing
    inequality this divergence is never above that of the whole vocabulary, and equals it where k is
    the vocabulary. (That the k alone are a biased estimate of a teacher: arxiv.org/abs/2503.16870.)

    `forward`: KL(teacher || student), arxiv.org/abs/1503.02531. `reverse`: KL(student || teacher),
    arxiv.org/abs/2306.08543, here at the tokens of given answers (arxiv.org/abs/2306.13649, section
    3, with its lambda = 0). With a temperature T the k + 1 log-probabilities of both are divided by
    it and normalised again, and the divergence is multiplied by T^2, as Hinton does: its gradient
    keeps its size. The loss of a token is hard_weight * cross entropy + (1 - hard_weight) *
    divergence; its mean over all tokens of a step is the loss.
    """

    figures = ("kl", "teacher_agreement", "hard_loss")

    def __init__(self, config: TrainingConfig, pad_token_id: int) -> None:
        super().__init__(config, pad_token_id)
        self._top_k = self._largest = 0

    def prepare(self, train: Sequence[Group], held_out: Sequence[Group]) -> None:
        """Check that each token has as many most probable ones. Raises DataError."""
        self._top_k = train[0].target.top_k
        for row in (*train, *held_out):
            if row.target.top_k != self._top_k:
                raise DataError(
                    f"Row {row.number} has the {row.target.top_k} most probable tokens of the"
                    f" teacher, and others have {self._top_k}.",
                    remedy="score all rows with one task.top_k",
                )
            self._largest = max(self._largest, int(_token_ids(row).max()))

    def check_model(self, model: Any) -> None:
        """Raise ConfigError for a token of the teacher that the student does not have."""
        size = model.config.get_text_config().vocab_size
        if self._largest >= size:
            raise ConfigError(
                f"The teacher's tokens go up to number {self._largest:,}, and the model has"
                f" {size:,} tokens.",
                remedy="distil from a teacher with the student's vocabulary",
            )

    def target(self, row: Group) -> None:
        """Return None: a batch has the teacher's tokens of all rows, one after the other."""

    def add_to_batch(self, batch: dict[str, Any], rows: Sequence[Group], collate: Any) -> None:
        counted = [row for row in rows if not row.is_blank]
        none = np.zeros((0, self._top_k))
        ids = np.concatenate([none, *map(_token_ids, counted)])
        log_probs = np.concatenate([none, *map(_log_probs, counted)])
        batch[_TOKEN_IDS] = torch.from_numpy(ids.astype(np.int64))
        batch[_LOG_PROBS] = torch.from_numpy(_with_others(log_probs).astype(np.float32))

    def counts(self, batch: dict[str, Any]) -> torch.Tensor:
        return torch.tensor([len(batch[_TOKEN_IDS])], dtype=torch.float64)

    def terms(self, model: Any, batch: dict[str, Any]) -> torch.Tensor:
        settings = self.settings
        logits, labels, _ = label_logits(model, batch)
        token_ids, theirs = batch[_TOKEN_IDS], batch[_LOG_PROBS]
        # No copy of all logits for each use of them: they are most of a step's memory.
        totals = logits.logsumexp(-1, keepdim=True)
        hard = (totals - logits.gather(-1, labels.unsqueeze(-1))).squeeze(-1)
        mine = logits.gather(-1, token_ids) - totals
        if token_ids.shape[-1] < logits.shape[-1]:
            others = logits.scatter(-1, token_ids, -torch.inf).logsumexp(-1, keepdim=True)
            mine = torch.cat([mine, others - totals], -1)
        else:  # There is no other token.
            theirs = theirs[:, :-1]
        scale = settings.temperature
        losses = scale**2 * divergence(mine / scale, theirs / scale, settings.divergence)
        agreed = (logits.argmax(-1) == token_ids[:, 0]).float()
        self.add(torch.ones_like(hard), losses / scale**2, agreed, hard)
        weight = settings.hard_weight
        return (weight * hard + (1 - weight) * losses).sum().reshape(1)


def _token_ids(row: Group) -> Any:
    return np.frombuffer(row.target.token_ids, np.int32).reshape(-1, row.target.top_k)


def _log_probs(row: Group) -> Any:
    return np.frombuffer(row.target.log_probs, np.float32).reshape(-1, row.target.top_k)


def _with_others(log_probs: Any) -> Any:
    """Return a teacher's log-probabilities with that of all other tokens, float64.

    In float32 the difference of 1 and the sum would be off by several times `_LEAST`.
    """
    rest = 1 - np.exp(log_probs.astype(np.float64)).sum(-1, keepdims=True)
    return np.concatenate([log_probs, np.log(np.maximum(rest, _LEAST))], -1)


def divergence(mine: torch.Tensor, theirs: torch.Tensor, direction: str) -> torch.Tensor:
    """Return the KL divergence of each row of two tensors of log-probabilities, normalised first.

    `forward`: of `mine` from `theirs`, the sum of p_theirs (log p_theirs - log p_mine).
    """
    mine, theirs = mine.log_softmax(-1), theirs.log_softmax(-1)
    first, second = (theirs, mine) if direction == "forward" else (mine, theirs)
    return (first.exp() * (first - second)).sum(-1)
