"""Held-out loss, weighted by tokens, and greedy answers for the user's own measure."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F

from llmops_kernel.config.models.train import TrainingConfig
from llmops_kernel.errors import HookError
from llmops_kernel.metrics.events import EvalEvent, PhaseEvent, ProgressEvent
from llmops_kernel.models.answer_ends import (
    answer_ends,
    greedy,
    stop_options,
    turn_end,
    until_end,
)
from llmops_kernel.store.journal.sample_texts import UnrepeatedSamples
from llmops_kernel.train.context import WorkerContext
from llmops_kernel.train.data.collate import COUNTS, KEPT
from llmops_kernel.train.data.examples import IGNORED, Example, Packed, Prompt, blank_like
from llmops_kernel.train.hooks import Hooks, call, hook_numbers
from llmops_kernel.train.objectives.objective import Evaluating, Objective

_COUNT_EVERY_S = 2.0


class RowCount:
    """Journals how many rows of an evaluation are done: at most a line each two seconds."""

    def __init__(
        self,
        context: WorkerContext,
        *,
        total: int,
        unit: str,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """Count rows. `total`: rows of this worker; all workers have about as many."""
        if context.world_size > 1:
            unit = f"{unit} of the first of {context.world_size} workers"
        self._context, self._total, self._unit = context, total, unit
        self._done, self._clock = 0, clock
        self._begun_s = self._reported_s = clock()
        self._tell(self._begun_s)

    def add(self, rows: int) -> None:
        self._done += rows
        now_s = self._clock()
        if now_s - self._reported_s >= _COUNT_EVERY_S:
            self._tell(now_s)

    def _tell(self, now_s: float) -> None:
        self._reported_s = now_s
        seconds = now_s - self._begun_s
        rate = {"per_second": self._done / seconds} if self._done and seconds > 0 else {}
        self._context.emit(
            ProgressEvent(done=self._done, total=self._total, unit=self._unit, values=rate)
        )


@dataclass(kw_only=True)
class Evaluator:
    """Evaluates the model on all held-out rows, shared out over the workers."""

    examples: Sequence[Example | Packed]
    prompts: Sequence[Prompt]
    own_prompts: Sequence[Prompt] = ()
    """Answered too, but not measured: they have no reference."""
    tokenizer: Any
    collator: Callable[[Any], dict[str, Any]]
    hooks: Hooks
    config: TrainingConfig
    context: WorkerContext
    accelerator: Any
    """The Trainer's."""
    objective: Objective | None = None
    """What the collator's batches are of; None: the model's own loss."""
    _unrepeated: UnrepeatedSamples = field(default_factory=UnrepeatedSamples, init=False)

    def __call__(self, model: Any, step: int) -> dict[str, float]:
        """Journal an EvalEvent; returns its metrics (on rank 0, else only the loss)."""
        begin = time.perf_counter()
        self.context.emit(PhaseEvent(name="evaluate", state="begin"))
        bare = self.accelerator.unwrap_model(model)
        was_training = bare.training
        bare.eval()
        with torch.no_grad(), self.accelerator.autocast():
            metrics = self._metrics(bare)
            prompts = [*self.prompts, *self.own_prompts]
            begin_answers_s = time.perf_counter()
            answers = self._generate(bare, prompts) if prompts else []
            answers_s = time.perf_counter() - begin_answers_s if prompts else None
        bare.train(was_training)
        metrics.update(self._measure(answers[: len(self.prompts)]))
        self.context.emit(
            EvalEvent(
                step=step,
                metrics=metrics,
                num_rows=len(self.prompts) or len(self.examples),
                duration_s=time.perf_counter() - begin,
                answers_s=answers_s,
                samples=self._samples(prompts, answers),
            )
        )
        self.context.emit(PhaseEvent(name="evaluate", state="end"))
        return metrics

    def _metrics(self, model: Any) -> dict[str, float]:
        if self.objective is None or not self.examples:
            loss = self._loss(model)
            return {} if loss is None else {"eval_loss": loss}
        shares: Any = self._share(self.examples)
        progress = RowCount(self.context, total=sum(map(len, shares)), unit="rows")
        blank: Any = blank_like(self.examples[0])
        step = Evaluating(self.accelerator.device, progress.add, blank)
        return self.objective.evaluate(model, shares, self.collator, step)

    def _loss(self, model: Any) -> float | None:
        """Return the mean loss of a token; None if no token counts. NaN means a broken model."""
        totals = torch.zeros(2, dtype=torch.float64, device=self.accelerator.device)
        shares = self._share(self.examples)
        progress = RowCount(self.context, total=sum(map(len, shares)), unit="rows")
        for rows in shares:
            batch = {
                name: value.to(self.accelerator.device)
                for name, value in self.collator(rows or self.examples[:1]).items()
                if name != COUNTS
            }
            loss, labelled = summed_loss(model, batch, labels=batch.pop("labels"))
            if rows:
                totals[0] += loss
                totals[1] += labelled
            progress.add(len(rows))
        if _distributed():
            dist.all_reduce(totals)
        return float(totals[0] / totals[1]) if totals[1] > 0 else None

    def _share(self, items: Sequence[Any]) -> list[Sequence[Any]]:
        """Return batches of this worker; every worker gets the same number (the last may be empty).

        Equal numbers matter under ZeRO-3, where each forward pass is a collective.
        """
        context, evaluation = self.context, self.config.evaluation
        size = evaluation.micro_batch_size or self.config.micro_batch_size
        mine = list(items[context.rank :: context.world_size])
        largest = -(-len(items) // context.world_size)
        return [mine[i : i + size] for i in range(0, largest, size)]

    def _generate(self, model: Any, prompts: Sequence[Prompt]) -> list[tuple[int, str]]:
        """Return (index of the prompt, answer) for all workers' prompts, by index."""
        # Longest first: rows of a batch are of like length, so little is padding.
        order = sorted(range(len(prompts)), key=lambda i: -len(prompts[i].input_ids))
        mine: list[tuple[int, str]] = []
        shares = self._share(order)
        progress = RowCount(self.context, total=sum(map(len, shares)), unit="answers")
        for indices in shares:
            texts = self._answers(model, [prompts[i] for i in indices or order[:1]])
            mine += list(zip(indices, texts, strict=False))
            progress.add(len(indices))
        if not _distributed():
            return sorted(mine)
        gathered: list[Any] = [None] * self.context.world_size
        dist.all_gather_object(gathered, mine)
        return sorted(pair for part in gathered for pair in part)

    def _answers(self, model: Any, prompts: Sequence[Prompt]) -> list[str]:
        width = max(len(prompt.input_ids) for prompt in prompts)
        pad = self.tokenizer.pad_token_id
        device = self.accelerator.device
        # Padding on the left, so that every prompt ends where its answer begins.
        ids = [[*[pad] * (width - len(p.input_ids)), *p.input_ids] for p in prompts]
        mask = [[*[0] * (width - len(p.input_ids)), *[1] * len(p.input_ids)] for p in prompts]
        ends = answer_ends(self.tokenizer, getattr(model, "generation_config", None))
        with greedy(model, ends=ends, pad=pad):
            output = model.generate(
                input_ids=torch.tensor(ids, device=device),
                attention_mask=torch.tensor(mask, device=device),
                max_new_tokens=self.config.evaluation.max_new_tokens,
                **stop_options(self.tokenizer),
            )
        return [self._text(row, ends) for row in output[:, width:].tolist()]

    def _text(self, tokens: Sequence[int], ends: Sequence[int]) -> str:
        text: str = self.tokenizer.decode(until_end(tokens, ends), skip_special_tokens=True)
        end = turn_end(self.tokenizer)
        if end.token is None and end.text:
            text = text.partition(end.text)[0]
        return text.strip()

    def _measure(self, answers: Sequence[tuple[int, str]]) -> dict[str, float]:
        hook = self.hooks.compute_metrics
        if hook is None or not answers or not self.context.is_main:
            return {}
        prompts = [self.prompts[index] for index, _ in answers]
        metrics = call(
            hook,
            [text for _, text in answers],
            [prompt.reference for prompt in prompts],
            [prompt.row for prompt in prompts],
        )
        try:
            return {str(name): float(value) for name, value in metrics.items()}
        except (AttributeError, TypeError, ValueError) as error:
            raise HookError(
                f"compute_metrics returned {metrics!r:.80}, not a dict of numbers.",
                remedy='return for example {"accuracy": 0.5}',
            ) from error

    def _samples(
        self, prompts: Sequence[Prompt], answers: Sequence[tuple[int, str]]
    ) -> tuple[dict[str, str], ...]:
        """Return the answers that are journalled, on the rank that journals them."""
        if not self.context.is_main:
            return ()
        return self._unrepeated.new(
            select_samples(prompts, answers, self._sampled_rows(), self.hooks)
        )

    def _sampled_rows(self) -> dict[int, str]:
        """Return the names of the rows whose answers are kept, by their index."""
        rows = spread(len(self.prompts), self.config.evaluation.samples)
        config_prompts = range(len(self.own_prompts))
        return {
            **{index: f"{self.prompts[index].number}" for index in rows},
            **{len(self.prompts) + index: f"prompt {index + 1}" for index in config_prompts},
        }


def summed_loss(
    model: Any, batch: dict[str, torch.Tensor], *, labels: torch.Tensor
) -> tuple[torch.Tensor, int]:
    """Return the summed cross entropy of the labelled tokens, and their number.

    `labels`: (batch, width), IGNORED where no loss counts; a label stands at its own token's
    position. Logits are computed from the first label on: before it, in the prompt, they would
    be most of the head's work and memory for nothing. A batch that names the positions of its
    logits has flat labels, see `collate.at_labels`.
    """
    if KEPT in batch:
        logits, targets = model(**batch).logits[:-1].float(), labels[1:]
        return F.cross_entropy(logits, targets, reduction="sum"), len(targets)
    num_logits = _num_logits(model, labels)
    logits = (
        model(**batch, **({"logits_to_keep": num_logits} if num_logits else {}))
        .logits[:, :-1]
        .float()
    )
    targets = labels[:, labels.shape[1] - logits.shape[1] :]
    loss = F.cross_entropy(
        logits.flatten(0, 1), targets.flatten(), ignore_index=IGNORED, reduction="sum"
    )
    return loss, int((targets != IGNORED).sum())


def _num_logits(model: Any, labels: torch.Tensor) -> int:
    """Return how many of the last positions need logits; 0 if the model computes all of them."""
    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    if "logits_to_keep" not in inspect.signature(base.forward).parameters:
        return 0
    labelled = (labels[:, 1:] != IGNORED).any(dim=0).nonzero()
    first = int(labelled[0]) if len(labelled) else labels.shape[1] - 2
    return int(labels.shape[1]) - first


def _distributed() -> bool:
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1


# --- Samples of an evaluation ---


_MOST_CHARACTERS = 4_000
_ALL_CHARACTERS = 96_000
"""Characters of all texts of one evaluation: they are one line of the journal, read whole."""

_TEXTS = ("row", "prompt", "prediction", "reference")
_WHY_TAKEN = "is already a column of the samples"
_MOST_METRICS, _MOST_ERROR = 20, 200


def spread(number: int, count: int) -> list[int]:
    """Return `count` of the indices 0..number-1 (all, if there are fewer), evenly spread.

    The same for each evaluation, so that a row can be followed from the first to the last.
    """
    if count >= number:
        return list(range(number))
    return [index * number // count for index in range(count)]


def select_samples(
    prompts: Sequence[Prompt],
    answers: Sequence[tuple[int, str]],
    names: Mapping[int, str],
    hooks: Hooks,
) -> tuple[dict[str, str], ...]:
    """Return prompt, prediction, reference and metrics of the rows in `names`.

    `names` names each index.
    """
    most = min(_MOST_CHARACTERS, _ALL_CHARACTERS // (3 * max(1, len(names))))
    return tuple(
        {
            "row": names[index],
            **_texts(prompts[index], text, most),
            **_metrics(prompts[index], text, names[index], hooks),
        }
        for index, text in answers
        if index in names
    )


def _metrics(prompt: Prompt, answer: str, name: str, hooks: Hooks) -> dict[str, str]:
    """Return the metrics of `score_row` for an answer; without it, whether it is the reference.

    A hook that fails is reported here and does not end the training: it may have been written for
    the rows of another table.
    """
    if not prompt.reference:
        return {}
    if hooks.score_row is None:
        return {"exact_match": f"{int(answer.strip() == prompt.reference.strip())}"}
    try:
        score = call(hooks.score_row, answer, prompt.reference, prompt.row, where=f"row {name}")
        numbers = hook_numbers(score, hook="score_row", reserved=_TEXTS, why_reserved=_WHY_TAKEN)
    except HookError as error:
        return {"score_row": shortened(error.message, _MOST_ERROR)}
    listed = list(numbers.items())[:_MOST_METRICS]
    return {key: "–" if value is None else f"{value:.4g}" for key, value in listed}


def _texts(prompt: Prompt, answer: str, most: int) -> dict[str, str]:
    texts = {"prompt": prompt.prompt, "prediction": answer, "reference": prompt.reference}
    if not prompt.reference:
        del texts["reference"]
    return {name: shortened(text, most) for name, text in texts.items()}


def shortened(text: str, most: int) -> str:
    """Return the first `most` characters of a longer text, and how many are left out."""
    if len(text) <= most:
        return text
    return f"{text[:most]}… ({len(text) - most:,} more characters)"
