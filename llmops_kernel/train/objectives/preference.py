"""Preferences between answers: DPO, ORPO and SimPO from pairs, KTO from single answers."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from transformers import TrainerCallback

from llmops_kernel.config.models.methods import FullMethod
from llmops_kernel.config.models.parallelism import DdpStrategy
from llmops_kernel.config.models.train import TrainingConfig
from llmops_kernel.errors import ModelError, TrainingError
from llmops_kernel.metrics.events import PhaseEvent
from llmops_kernel.models.source import model_source
from llmops_kernel.train.collectives import gather, is_group
from llmops_kernel.train.context import WorkerContext
from llmops_kernel.train.data.collate import KEPT
from llmops_kernel.train.data.examples import IGNORED, Blank, Example, Group, blank_like
from llmops_kernel.train.evaluation import RowCount
from llmops_kernel.train.hooks import Hooks
from llmops_kernel.train.model.load import count_embeddings, load_model
from llmops_kernel.train.model.origin import loading_alone, origin
from llmops_kernel.train.objectives.objective import (
    GROUPS,
    TARGETS,
    Evaluating,
    Objective,
    label_logits,
    preferred,
)

REFERENCE = "llmops_reference"
"""Batch key of log-probabilities (rows, sequences) that were computed before the training."""
_MISMATCHED = "llmops_mismatched"
"""Batch key of KTO's second batch: each prompt with the answer of another row."""


def log_probs(model: Any, batch: dict[str, Any]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the log-probability of each sequence's labels, summed, and how many labels it has."""
    logits, labels, rows = label_logits(model, batch)
    token_log_probs = -F.cross_entropy(logits, labels, reduction="none")
    count = len(batch["input_ids"])
    sums = token_log_probs.new_zeros(count).index_add(0, rows, token_log_probs)
    return sums, torch.bincount(rows, minlength=count)


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
        batch[_MISMATCHED] = collate(
            [
                (Blank if row.is_blank else Example)(
                    [*prompt, *answer], [*[IGNORED] * len(prompt), *answer]
                )
                for row, (prompt, _), answer in zip(rows, splits, answers, strict=True)
            ]
        )

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


# --- The model as it was before the training ---


_REFERENCE_FILE = "llmops_reference.npz"


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

    def of_rows(self, rows: Sequence[Group]) -> torch.Tensor | None:
        """Return them as (rows, sequences); 0 for blank rows, None before they are computed.

        Raises TrainingError for a row that was not asked about, such as a new evaluation row.
        """
        if not self._known:
            return None
        none = np.zeros(len(rows[0].lengths), np.float32)
        known = []
        for row in rows:
            values = none if row.is_blank else self._known.get(_key(row))
            if values is None:
                raise TrainingError(
                    f"The log-probabilities of row {row.number} were not computed before the"
                    " training: the rows have changed since.",
                    remedy="put the data back as it was, or start anew: `llmops resubmit`",
                )
            known.append(values)
        return torch.from_numpy(np.stack(known))

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
            log_probabilities = self.of_policy(model, batch).float().cpu().numpy()
            width = len((rows or [step.blank])[0].lengths)
            mine |= {
                _key(row): values
                for row, values in zip(rows, log_probabilities.reshape(-1, width), strict=False)
            }
            step.done(len(rows))
        for share in gather(mine):
            self._known |= share

    def save(self, checkpoint: Path) -> None:
        keys = np.frombuffer(b"".join(self._known), np.uint8).reshape(len(self._known), -1)
        np.savez(checkpoint / _REFERENCE_FILE, keys=keys, values=np.stack([*self._known.values()]))

    def load(self, checkpoint: Path) -> bool:
        """Return whether a checkpoint has them."""
        try:
            with np.load(checkpoint / _REFERENCE_FILE, allow_pickle=False) as arrays:
                pairs = zip(arrays["keys"], arrays["values"], strict=True)
                self._known = {key.tobytes(): values for key, values in pairs}
        except (OSError, ValueError, KeyError):
            return False
        return True


def _key(row: Group) -> bytes:
    """Return a digest of the row's tokens: workers and resumed runs have rows in other orders."""
    content = np.asarray([*row.lengths, *row.input_ids], np.int32).tobytes()
    return hashlib.blake2b(content, digest_size=16).digest()


def load_reference(config: TrainingConfig, context: WorkerContext, *, vocabulary: int) -> Any:
    """Return the model of `objective.reference`, whole on each worker. Raises ModelError.

    `vocabulary`: tokens that the trained model has an embedding of.
    """
    named = config.objective.reference  # type: ignore[attr-defined]
    model = config.model.model_copy(update={"id": named.id, "revision": None, "run": None})
    every = {"model": model, "method": FullMethod(), "parallelism": DdpStrategy()}
    alone = config.model_copy(update=every)
    source = model_source(named.id, roots=context.roots, cache=context.cache)
    base = origin(source, alone, roots=context.roots, cache=context.cache)
    with loading_alone():
        loaded = load_model(base.weights, base.config, Hooks(), adapter=base.adapter)
    if (own := count_embeddings(loaded)) != vocabulary:
        raise ModelError(
            f"objective.reference has {own:,} embeddings, and the trained model {vocabulary:,}:"
            " they do not read the same tokens.",
            remedy="compare with a model of the same tokenizer",
        )
    return loaded.requires_grad_(False)


class KeepReference(TrainerCallback):
    """Computes a reference before the first step, or takes that of the checkpoint."""

    def __init__(
        self,
        reference: Computed,
        *,
        config: TrainingConfig,
        context: WorkerContext,
        rows: Sequence[Group],
        collate: Callable[[Sequence[Group]], dict[str, Any]],
        resume: Path | None,
        accelerator: Any,
        vocabulary: int,
    ) -> None:
        """`rows`: all that are compared, of which each worker asks about its share."""
        self._reference, self._config, self._context = reference, config, context
        self._resume, self._accelerator, self._vocabulary = resume, accelerator, vocabulary
        size, world = config.micro_batch_size, context.world_size
        mine = rows[context.rank :: world]
        self._shares = [mine[n : n + size] for n in range(0, -(-len(rows) // world), size)]
        self._collate = collate
        self._blank: Any = blank_like(rows[0])

    def on_train_begin(
        self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any
    ) -> None:
        """Ask the model as the engine has it, or the other; a resumed run has trained already."""
        if self._resume is not None:
            if not self._reference.load(self._resume):
                raise TrainingError(
                    f"{self._resume.name} lacks the log-probabilities of the model as it was before"
                    " the training, which objective.type compares with.",
                    remedy="start from the beginning: `llmops resubmit`",
                )
            return
        self._context.emit(PhaseEvent(name="reference", state="begin"))
        reference = model
        if self._config.objective.has_other_reference:
            reference = load_reference(self._config, self._context, vocabulary=self._vocabulary)
            reference.to(args.device)
        progress = RowCount(self._context, total=sum(map(len, self._shares)), unit="rows")
        with self._accelerator.autocast():
            step = Evaluating(args.device, progress.add, self._blank)
            self._reference.compute(reference, self._shares, self._collate, step)
        for module in model.modules():
            if hasattr(module, "reshard"):  # FSDP keeps some whole for a backward pass.
                module.reshard()
        self._context.emit(PhaseEvent(name="reference", state="end"))

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Add it to a checkpoint before that is marked complete."""
        if self._context.is_main:
            self._reference.save(Path(args.output_dir) / f"checkpoint-{state.global_step}")
