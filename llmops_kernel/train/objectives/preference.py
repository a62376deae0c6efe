"""Preferences between answers: DPO, ORPO and SimPO from pairs, KTO from single answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
import torch.distributed as dist
import torch.nn.functional as F

from llmops_kernel.train.collectives import is_group
from llmops_kernel.train.data.collate import COUNTS, KEPT
from llmops_kernel.train.data.examples import IGNORED, Example, Group
from llmops_kernel.train.objectives.objective import GROUPS, TARGETS, Objective, preferred

REFERENCE = "llmops_reference"
"""Batch key of log-probabilities (rows, sequences) that were computed before the training."""
_MISMATCHED = "llmops_mismatched"
"""Batch key of KTO's second batch: each prompt with the answer of another row."""


def log_probs(model: Any, batch: dict[str, Any]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the log-probability of each sequence's labels, summed, and how many labels it has.

    Logits are computed at labels only where the batch names the positions (`collate.at_labels`).
    """
    inputs = {name: batch[name] for name in ("input_ids", "attention_mask")}
    labels = batch["labels"]
    if KEPT in batch:
        mask = batch[KEPT]
        logits = model(**inputs, **{KEPT: mask}).logits[:-1].float()
        found = -F.cross_entropy(logits, labels[1:], reduction="none")
        rows = mask.nonzero()[:-1, 0]
        sums = found.new_zeros(len(mask)).index_add(0, rows, found)
        return sums, torch.bincount(rows, minlength=len(mask))
    logits, targets = model(**inputs).logits[:, :-1].float(), labels[:, 1:]
    found = -F.cross_entropy(
        logits.flatten(0, 1), targets.flatten(), ignore_index=IGNORED, reduction="none"
    )
    return found.view_as(targets).sum(-1), (targets != IGNORED).sum(-1)


class _Pairs(Objective):
    """What the objectives of pairs share: sequences are the chosen and the rejected, in turn."""

    figures: ClassVar[tuple[str, ...]] = (
        "reward_margin",
        "reward_accuracy",
        "logp_chosen",
        "logp_rejected",
    )

    def both(self, model: Any, batch: dict[str, Any]) -> tuple[torch.Tensor, torch.Tensor]:
        """Return log-probabilities and numbers of tokens, each as (rows, 2)."""
        sums, tokens = log_probs(model, batch)
        return sums.view(-1, 2), tokens.view(-1, 2).clamp(min=1)

    def finish(
        self, batch: dict[str, Any], losses: torch.Tensor, rewards: torch.Tensor, sums: torch.Tensor
    ) -> torch.Tensor:
        """Add the figures and return the sum of the losses of rows that count.

        `rewards`, `sums`: (rows, 2), the implied rewards and the log-probabilities.
        """
        is_row = batch[GROUPS][:, 1]
        margin = rewards[:, 0] - rewards[:, 1]
        self.add(is_row, margin, preferred(margin), sums[:, 0], sums[:, 1])
        return (losses * is_row).sum().reshape(1)


class Dpo(_Pairs):
    """Direct preference optimization: arxiv.org/abs/2305.18290, equation 7.

    `hinge`: SLiC-HF, arxiv.org/abs/2305.10425. `ipo`: arxiv.org/abs/2310.12036, equation 17, with
    log-probabilities a token, as its authors do. `label_smoothing`: conservative DPO,
    ericmitchell.ai/cdpo.pdf.
    """

    def add_to_batch(self, batch: dict[str, Any], rows: Sequence[Group], collate: Any) -> None:
        known = self.reference.of_rows(rows)
        if known is not None:
            batch[REFERENCE] = known

    def terms(self, model: Any, batch: dict[str, Any]) -> torch.Tensor:
        settings = self.settings
        before = self.reference.log_probs(model, batch)
        sums, tokens = self.both(model, batch)
        ratios = sums - before.view(-1, 2)
        if settings.loss_type == "ipo":
            shares = ratios / tokens
            losses = (shares[:, 0] - shares[:, 1] - 1 / (2 * settings.beta)) ** 2
        else:
            logits = settings.beta * (ratios[:, 0] - ratios[:, 1])
            if settings.loss_type == "hinge":
                losses = torch.relu(1 - logits)
            else:
                wrong = settings.label_smoothing
                losses = -(1 - wrong) * F.logsigmoid(logits) - wrong * F.logsigmoid(-logits)
        return self.finish(batch, losses, settings.beta * ratios, sums)


class Orpo(_Pairs):
    """Odds ratio preference optimization: arxiv.org/abs/2403.07691, equations 6 and 7.

    The loss of the preferred answer is a mean over tokens, that of the odds a mean over rows.
    """

    figures = (*_Pairs.figures, "nll_chosen")

    def counts(self, batch: dict[str, Any]) -> torch.Tensor:
        is_row = batch[GROUPS][:, 1].bool()
        if KEPT in batch:
            mask = batch[KEPT].clone()
            mask[-1, -1] = False  # Kept without a label, see `collate.at_labels`.
            tokens = mask.sum(-1)
        else:
            tokens = (batch["labels"][:, 1:] != IGNORED).sum(-1)
        return torch.stack([is_row.sum(), tokens.view(-1, 2)[is_row, 0].sum()]).double()

    def terms(self, model: Any, batch: dict[str, Any]) -> torch.Tensor:
        is_row = batch[GROUPS][:, 1]
        sums, tokens = self.both(model, batch)
        means = sums / tokens
        # A blank row has no token, and a probability of 1.
        means = means.masked_fill(is_row.bool().logical_not()[:, None], -1.0)
        odds = means - torch.log(-torch.expm1(means.clamp(max=-1e-7)))
        losses = -self.settings.beta * F.logsigmoid(odds[:, 0] - odds[:, 1])
        rewards = self.settings.beta * means
        margin = rewards[:, 0] - rewards[:, 1]
        self.add(is_row, margin, preferred(margin), sums[:, 0], sums[:, 1], -means[:, 0])
        return torch.stack([(losses * is_row).sum(), -(sums[:, 0] * is_row).sum()])


class Simpo(_Pairs):
    """Simple preference optimization: arxiv.org/abs/2405.14734, equation 6."""

    def terms(self, model: Any, batch: dict[str, Any]) -> torch.Tensor:
        sums, tokens = self.both(model, batch)
        rewards = self.settings.beta * sums / tokens
        losses = -F.logsigmoid(rewards[:, 0] - rewards[:, 1] - self.settings.gamma)
        return self.finish(batch, losses, rewards, sums)


class Kto(Objective):
    """Kahneman-Tversky optimization: arxiv.org/abs/2402.01306, equations 7 and 8.

    The reference point is the divergence on prompts with answers of other rows, the mean over the
    micro batches of all workers, without gradients.
    """

    figures = ("reward_good", "reward_bad", "kl")

    def target(self, row: Group) -> float:
        return float(row.target)

    def add_to_batch(self, batch: dict[str, Any], rows: Sequence[Group], collate: Any) -> None:
        """Add each prompt with the answer of the row before it, as TRL does."""
        splits = []
        for row in rows:
            begin = next((n for n, label in enumerate(row.labels) if label != IGNORED), 1)
            splits.append((row.input_ids[:begin], row.input_ids[begin:]))
        counted = [n for n, row in enumerate(rows) if not row.is_blank] or [0]
        before = {number: counted[place - 1] for place, number in enumerate(counted)}
        answers = [splits[before.get(n, n)][1] for n in range(len(rows))]
        mismatched = [
            Example([*prompt, *answer], [*[IGNORED] * len(prompt), *answer])
            for (prompt, _), answer in zip(splits, answers, strict=True)
        ]
        extra = collate(mismatched)
        extra.pop(COUNTS)
        batch[_MISMATCHED] = extra

    def terms(self, model: Any, batch: dict[str, Any]) -> torch.Tensor:
        settings, mismatched = self.settings, batch[_MISMATCHED]
        is_row, is_good = batch[GROUPS][:, 1], batch[TARGETS] > 0
        with torch.no_grad():
            before = self.reference.log_probs(model, batch)
            other = self.reference.log_probs(model, mismatched)
            divergence = self.reference.of_policy(model, mismatched) - other
            point = torch.stack([(divergence * is_row).sum(), is_row.sum().to(divergence.dtype)])
            if is_group():
                dist.all_reduce(point)
            point = (point[0] / point[1].clamp(min=1)).clamp(min=0)
        sums, _ = log_probs(model, batch)
        ratios = sums - before
        gains = settings.beta * torch.where(is_good, ratios - point, point - ratios)
        weights = torch.where(is_good, settings.desirable_weight, settings.undesirable_weight)
        losses = weights * (1 - torch.sigmoid(gains))
        rewards, none = settings.beta * ratios.detach(), torch.full_like(ratios, torch.nan)
        self.add(
            is_row,
            torch.where(is_good, rewards, none),
            torch.where(is_good, none, rewards),
            point.expand_as(ratios),
        )
        return (losses * is_row).sum().reshape(1)
