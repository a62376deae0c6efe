"""The Ray actor that scores parts: reads rows, asks its engine, writes Parquet."""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from llmops_kernel.config.models.score.config import ScoreConfig
from llmops_kernel.driver.hooks import load_functions
from llmops_kernel.driver.nodes.holds import this_node
from llmops_kernel.errors import LLMOpsError
from llmops_kernel.score.answers import AnswerSource, CancelledError
from llmops_kernel.score.engines.protocol import Answer, Job, Prompt
from llmops_kernel.score.evaluate.row_scorer import RowScorer
from llmops_kernel.score.evaluate.totals import Totals
from llmops_kernel.score.failures import counted, refusal
from llmops_kernel.score.input.prompts import PROMPT_HOOKS, PromptMaker
from llmops_kernel.score.output.ledger import PartResult
from llmops_kernel.score.output.sink import Sink, table_bytes
from llmops_kernel.score.output.table import OutputColumns, ScoredRow, part_table, prompt_text
from llmops_kernel.score.standing.replicas import Deployment, replica
from llmops_kernel.tables.parts import Part
from llmops_kernel.tables.reading import read_part
from llmops_kernel.tables.rows import TableRow

HOOKS = (*PROMPT_HOOKS, "score_row", "compute_metrics")
_MIN_CHUNK, _MAX_CHUNK = 32, 512
_SHOWN = 2000


@dataclass(frozen=True, kw_only=True)
class ScorerSetup:
    """What all scorers of a run have in common."""

    config: dict[str, Any]
    job: Job
    deployment: Deployment
    columns: OutputColumns
    output: str
    """Where parts are written; empty: they are sent to the driver."""
    caller: str = field(default_factory=lambda: uuid.uuid4().hex)
    """By which engines know the calls of these scorers."""


@dataclass
class PartOutcome:
    """What becomes of a part: a result, or why there is none."""

    index: int
    result: PartResult | None = None
    data: bytes | None = None
    """The Parquet file, when the driver writes it."""
    cancelled: bool = False
    error: LLMOpsError | None = None


class Scorer:
    """One for each replica of the engine; two parts at a time keep the engine busy."""

    def __init__(self, setup: ScorerSetup, index: int) -> None:
        self._setup, self._index = setup, index
        self._config = ScoreConfig.model_validate(setup.config)
        file = self._config.hooks.file
        hooks = load_functions(Path(file), HOOKS) if file else {}
        self._prompt = PromptMaker(self._config, hooks)
        self._row_scorer = RowScorer(self._config, hooks.get("score_row"))
        self._sink = Sink(setup.output) if setup.output else None
        self._cancelled = threading.Event()
        self._node = this_node()
        self._lock, self._alone = threading.Lock(), threading.Lock()
        self._open: dict[int, int] = {}
        """Rows that have an answer, of each part under way."""
        self._answered = 0
        self._tokens = [0, 0]
        self._recent: deque[dict[str, str]] = deque(maxlen=max(1, self._config.evaluation.samples))

    def progress(self) -> dict[str, Any]:
        """Rows of unfinished parts, answers and tokens since the start, and the newest answers."""
        with self._lock:
            return {
                "rows": sum(self._open.values()),
                "answered": self._answered,
                "prompt_tokens": self._tokens[0],
                "output_tokens": self._tokens[1],
                "samples": list(self._recent),
                "node": self._node,
            }

    def cancel(self) -> None:
        self._cancelled.set()

    def score(self, part: Part) -> PartOutcome:
        """Score a part and write it. Errors are returned, as an exception would end the pool."""
        try:
            return self._score(part)
        except CancelledError:
            return PartOutcome(part.index, cancelled=True)
        except LLMOpsError as error:
            # Of the engine's actor Ray raises one of its own, around ours.
            return PartOutcome(part.index, error=getattr(error, "cause", None) or error)
        finally:
            with self._lock:
                self._open.pop(part.index, None)

    def _score(self, part: Part) -> PartOutcome:
        began_s = time.monotonic()
        read = read_part(part)
        scored = self._prepared(read.rows)
        self._answer(part, scored)
        totals = self._measure(scored)
        table = part_table(scored, self._setup.columns, read.table)
        if self._cancelled.is_set():
            raise CancelledError
        data = None
        if self._sink is not None:
            num_bytes = self._sink.write_table(part.index, table)
        else:
            data = table_bytes(table)
            num_bytes = len(data)
        result = _result(part, scored, totals, num_bytes, time.monotonic() - began_s)
        return PartOutcome(part.index, result, data)

    def _prepared(self, rows: Sequence[TableRow]) -> list[ScoredRow]:
        return [self._prepare(row) for row in rows]

    def _prepare(self, row: TableRow) -> ScoredRow:
        scored = ScoredRow(row, error=row.error)
        if row.error:
            return scored
        try:
            prepared = self._prompt(row.values)
        except LLMOpsError as error:
            scored.error = error.message
            return scored
        scored.prompt, scored.reference = prepared.prompt, prepared.reference
        scored.error = prepared.lack(self._setup.job.task)
        return scored

    def _answer(self, part: Part, scored: Sequence[ScoredRow]) -> None:
        """Fill in the answers; a row with an error is not sent."""
        asked = [one for one in scored if not one.error]
        job = self._setup.job
        prompts: list[Prompt] = [one.prompt for one in asked]
        targets = [one.reference or "" for one in asked] if job.task == "logprob" else []
        size = min(_MAX_CHUNK, max(_MIN_CHUNK, self._config.engine.batch_size))
        if self._cancelled.is_set():  # An engine that left would be started again.
            raise CancelledError
        source = AnswerSource(
            lambda: replica(self._setup.deployment, self._index),
            chunk_rows=size,
            alone=self._alone,
            counted=lambda answers: self._count(part.index, asked, answers),
            is_cancelled=self._cancelled.is_set,
            caller=self._setup.caller,
        )
        found = source.answers(job, prompts, targets, [one.row.number for one in asked])
        for one, answer in zip(asked, found, strict=True):
            one.answer = answer
            one.error = answer.error or _not_json(job, answer)

    def _count(self, index: int, asked: Sequence[ScoredRow], answers: Sequence[Answer]) -> None:
        with self._lock:
            self._open[index] = self._open.get(index, 0) + len(answers)
            self._answered += len(answers)
            self._tokens[0] += sum(answer.prompt_tokens for answer in answers)
            self._tokens[1] += sum(answer.output_tokens for answer in answers)
            for answer in answers[-self._config.evaluation.samples :]:
                if not answer.error:
                    self._recent.append(sample(asked[answer.id], answer))

    def _measure(self, scored: Sequence[ScoredRow]) -> Totals:
        totals = Totals()
        for one in scored:
            if not one.error and one.answer is not None:
                self._measure_one(totals, one, one.answer)
            if one.error:
                totals.add_error()
        return totals

    def _measure_one(self, totals: Totals, one: ScoredRow, answer: Answer) -> None:
        try:
            scores = self._row_scorer.row(
                answer.text,
                one.reference,
                one.row.values,
                logprob=answer.logprob,
                output_tokens=answer.output_tokens,
                label_scores=answer.scores,
            )
        except LLMOpsError as error:
            one.error = error.message
            return
        one.metrics = scores.values
        totals.add(scores)


def _result(
    part: Part, scored: Sequence[ScoredRow], totals: Totals, num_bytes: int, seconds: float
) -> PartResult:
    asked = [one for one in scored if one.answer is not None]
    answers = [one.answer for one in asked if one.answer is not None]
    return PartResult(
        index=part.index,
        rows=len(scored),
        errors=sum(bool(one.error) for one in scored),
        prompt_tokens=sum(answer.prompt_tokens for answer in answers),
        output_tokens=sum(answer.output_tokens for answer in answers),
        num_bytes=num_bytes,
        seconds=seconds,
        totals=totals.to_json(),
        reasons=counted(one.error for one in scored if one.error),
        refused=refusal([one.error for one in asked]),
    )


def sample(one: ScoredRow, answer: Answer) -> dict[str, str]:
    """Return a row as screens show it."""
    return {
        "row": str(one.row.number),
        "prompt": prompt_text(one.prompt)[:_SHOWN],
        "prediction": answer.text[:_SHOWN],
        "reference": (one.reference or "")[:_SHOWN],
    }


def _not_json(job: Job, answer: Answer) -> str:
    if job.task != "json":
        return ""
    try:
        json.loads(answer.text)
    except ValueError as error:
        cut = answer.finish == "length"
        return "the answer was cut at sampling.max_tokens" if cut else f"not JSON: {error}"
    return ""
