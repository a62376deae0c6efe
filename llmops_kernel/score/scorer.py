"""The Ray actor that scores parts: reads rows, asks its engine, writes Parquet."""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from llmops_kernel.config.models.score import ScoreConfig
from llmops_kernel.driver.hooks import load_functions
from llmops_kernel.driver.nodes import this_node
from llmops_kernel.errors import LLMOpsError, RunError
from llmops_kernel.hardware.load import patience_s
from llmops_kernel.score.engine_replicas import Deployment, get_replica
from llmops_kernel.score.engines.prompts import WINDOW
from llmops_kernel.score.engines.protocol import Answer, Job, Prompt
from llmops_kernel.score.evaluate.row_scorer import RowScorer, Totals
from llmops_kernel.score.failures import counted, refusal
from llmops_kernel.score.ledger import PartResult
from llmops_kernel.score.output_table import OutputColumns, ScoredRow, part_table, prompt_text
from llmops_kernel.score.prompts import PROMPT_HOOKS, PromptMaker
from llmops_kernel.score.sink import Sink, table_bytes
from llmops_kernel.tables.parts import Part, TableRow
from llmops_kernel.tables.reading import read_part

HOOKS = (*PROMPT_HOOKS, "score_row", "compute_metrics")
_MIN_CHUNK, _MAX_CHUNK = 32, 512
_SHOWN = 2000


@dataclass(frozen=True, kw_only=True)
class ScorerSetup:
    """The settings that all scorers of a run have in common."""

    config: dict[str, Any]
    job: Job
    reference_job: Job | None = None
    """For vectors of the references; None: there are none."""
    deployment: Deployment
    columns: OutputColumns
    output: str
    """Folder for the parts; empty: they are sent to the driver."""
    caller: str = field(default_factory=lambda: uuid.uuid4().hex)
    """By which engines know the calls of these scorers."""


@dataclass
class PartOutcome:
    """The outcome of a part: a result, or why there is none."""

    index: int
    result: PartResult | None = None
    data: bytes | None = None
    """The Parquet file, when the driver writes it."""
    cancelled: bool = False
    error: LLMOpsError | None = None


class Scorer:
    """The scorer of one replica of the engine; two parts at a time keep the engine busy."""

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
        """Return rows of open parts, answers and tokens since the start, and the newest answers."""
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
        valid_rows = [row for row in scored if not row.error]
        job = self._setup.job
        prompts: list[Prompt] = [row.prompt for row in valid_rows]
        targets = [row.reference or "" for row in valid_rows] if job.task == "logprob" else []
        source = self._source(lambda answers: self._count(part.index, valid_rows, answers))
        results = source.answers(job, prompts, targets, [row.row.number for row in valid_rows])
        for row, answer in zip(valid_rows, results, strict=True):
            row.answer = answer
            row.error = answer.error or _not_json(job, answer) or _lacks_tokens(job, answer)
            row.is_cut = job.task == "embed" and answer.finish == "length"
        if self._setup.reference_job is not None:
            self._embed_references(self._setup.reference_job, valid_rows)

    def _embed_references(self, job: Job, rows: Sequence[ScoredRow]) -> None:
        """Fill in the vectors of the references; equal ones of a part are computed once."""
        with_reference = [row for row in rows if row.reference is not None and not row.error]
        texts = list(dict.fromkeys(row.reference or "" for row in with_reference))
        answers = self._source().answers(job, [self._prompt.of_text(text) for text in texts])
        known = dict(zip(texts, answers, strict=True))
        for row in with_reference:
            answer = known[row.reference or ""]
            row.reference_embedding = answer.embedding
            row.error = f"the reference: {answer.error}" if answer.error else ""
            row.is_cut |= answer.finish == "length"

    def _source(
        self, on_answers: Callable[[Sequence[Answer]], None] = lambda _: None
    ) -> AnswerSource:
        """Return the replica's answers; `on_answers` is told of them. Raises CancelledError."""
        if self._cancelled.is_set():  # An engine that left would be started again.
            raise CancelledError
        rows = self._config.engine.batch_size
        if self._setup.deployment.spec.type == "transformers":
            rows *= WINDOW  # It groups prompts by length, inside a call only.
        return AnswerSource(
            lambda: get_replica(self._setup.deployment, self._index),
            chunk_rows=min(_MAX_CHUNK, max(_MIN_CHUNK, rows)),
            alone=self._alone,
            on_answers=on_answers,
            is_cancelled=self._cancelled.is_set,
            caller=self._setup.caller,
        )

    def _count(
        self, index: int, valid_rows: Sequence[ScoredRow], answers: Sequence[Answer]
    ) -> None:
        with self._lock:
            self._open[index] = self._open.get(index, 0) + len(answers)
            self._answered += len(answers)
            self._tokens[0] += sum(answer.prompt_tokens for answer in answers)
            self._tokens[1] += sum(answer.output_tokens for answer in answers)
            for answer in answers[-self._config.evaluation.samples :]:
                if not answer.error:
                    self._recent.append(sample(valid_rows[answer.id], answer))

    def _measure(self, scored: Sequence[ScoredRow]) -> Totals:
        totals = Totals()
        for row in scored:
            if not row.error and row.answer is not None:
                self._measure_one(totals, row, row.answer)
            if row.error:
                totals.add_error()
        return totals

    def _measure_one(self, totals: Totals, row: ScoredRow, answer: Answer) -> None:
        try:
            scores = self._row_scorer.row(
                answer.text,
                row.reference,
                row.row.values,
                logprob=answer.logprob,
                output_tokens=answer.output_tokens,
                label_scores=answer.scores,
                value=answer.value,
            )
        except LLMOpsError as error:
            row.error = error.message
            return
        row.metrics = scores.values
        totals.add(scores)
        totals.num_cut += row.is_cut


def _result(
    part: Part, scored: Sequence[ScoredRow], totals: Totals, num_bytes: int, seconds: float
) -> PartResult:
    answered = [row for row in scored if row.answer is not None]
    answers = [row.answer for row in answered if row.answer is not None]
    return PartResult(
        index=part.index,
        rows=len(scored),
        errors=sum(bool(row.error) for row in scored),
        prompt_tokens=sum(answer.prompt_tokens for answer in answers),
        output_tokens=sum(answer.output_tokens for answer in answers),
        num_bytes=num_bytes,
        seconds=seconds,
        totals=totals.to_json(),
        reasons=counted(row.error for row in scored if row.error),
        refused=refusal([row.error for row in answered]),
    )


def sample(row: ScoredRow, answer: Answer) -> dict[str, str]:
    """Return a row as screens show it."""
    return {
        "row": str(row.row.number),
        "prompt": prompt_text(row.prompt)[:_SHOWN],
        "prediction": answer.text[:_SHOWN],
        "reference": (row.reference or "")[:_SHOWN],
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


def _lacks_tokens(job: Job, answer: Answer) -> str:
    """Return what an engine of the user's left out, which a training could not do without."""
    if not job.top_logprobs or answer.top_tokens:
        return ""
    return (
        "the engine returned no most probable tokens for task.top_k; set engine.type to vllm or"
        " transformers"
    )


# --- Answers of an engine that may die meanwhile ---


_IN_FLIGHT = 4
"""Calls at once: the engine always has the next requests before it has finished the last."""
_MAX_LOSSES = 30
"""Losses of the engine during one part, before the run is given up."""
_RETURN_S = 120.0
"""How long Ray may take to start the engine's process again on a machine that is not busy."""
_LOOK_S = 0.2


class CancelledError(Exception):
    """The run was stopped."""


@dataclass
class _Chunk:
    """Consecutive prompts that are sent in one call."""

    first: int
    prompts: Sequence[Prompt]
    targets: Sequence[str]
    rows: Sequence[int]
    losses: int = 0

    def halves(self) -> list[_Chunk]:
        middle = len(self.prompts) // 2
        pieces = [(0, middle), (middle, len(self.prompts))]
        return [
            _Chunk(
                self.first + a,
                self.prompts[a:b],
                self.targets[a:b],
                self.rows[a:b],
                # One alone must fail twice: another job of the same engine may be the cause.
                losses=int(b - a > 1),
            )
            for a, b in pieces
        ]


class AnswerSource:
    """Calls one engine replica; a call that the engine does not survive is made again.

    Prompts that were under way when the engine died are tried one call at a time, and a call that
    it dies of twice is halved: at last one prompt is found, which gets an error as its answer.
    """

    def __init__(
        self,
        find: Callable[[], Any],
        *,
        chunk_rows: int,
        alone: threading.Lock | None = None,
        on_answers: Callable[[Sequence[Answer]], None] = lambda _: None,
        is_cancelled: Callable[[], bool] = lambda: False,
        caller: str = "",
    ) -> None:
        """Use the replica's actor that `find` returns, which starts it if it is gone.

        `alone`: shared by all sources of one engine in this process. While one of them looks for
        the prompt that the engine dies of, the others send nothing. `caller`: by which the
        engine can be told to drop the calls.
        """
        self._alone = alone or threading.Lock()
        self._find = find
        self._engine = find()
        self._chunk_rows = chunk_rows
        self._on_answers = on_answers
        self._is_cancelled = is_cancelled
        self._caller = caller

    def answers(
        self,
        job: Job,
        prompts: Sequence[Prompt],
        targets: Sequence[str] = (),
        rows: Sequence[int] = (),
    ) -> list[Answer]:
        """Return an answer for each prompt, in order; ids count from 0.

        `rows`: the prompts' row numbers, for random choices; default counted from 0.

        Raises RunError when the engine dies again and again, CancelledError after a stop.
        """
        size = self._chunk_rows
        numbers = rows or range(len(prompts))
        chunks = deque(
            _Chunk(n, prompts[n : n + size], targets[n : n + size], numbers[n : n + size])
            for n in range(0, len(prompts), size)
        )
        results: list[Answer | None] = [None] * len(prompts)
        suspects = self._all_at_once(job, chunks, results)
        if suspects:
            with self._alone:
                self._one_by_one(job, suspects, results)
        return [answer for answer in results if answer is not None]

    def _all_at_once(
        self, job: Job, chunks: deque[_Chunk], results: list[Answer | None]
    ) -> deque[_Chunk]:
        """Return the chunks that have no answer because the engine was lost."""
        import ray

        under_way: deque[tuple[_Chunk, Any]] = deque()
        lost: deque[_Chunk] = deque()
        while chunks or under_way:
            while chunks and len(under_way) < _IN_FLIGHT and not lost:
                chunk = chunks.popleft()
                with self._alone:  # Not while another part is looking for a bad prompt.
                    pass
                under_way.append((chunk, self._call(job, chunk)))
            chunk, call = under_way.popleft()
            try:
                self._keep(chunk, self._result(call), results)
            except ray.exceptions.RayActorError:
                chunk.losses += 1
                lost.append(chunk)
            if lost and not under_way:
                lost.extend(chunks)
                break
        return lost

    def _one_by_one(self, job: Job, suspects: deque[_Chunk], results: list[Answer | None]) -> None:
        import ray

        losses = 0
        while suspects:
            chunk = suspects.popleft()
            self._await_engine()
            try:
                self._keep(chunk, self._result(self._call(job, chunk)), results)
                continue
            except ray.exceptions.RayActorError as error:
                losses += 1
                chunk.losses += 1
                if losses > _MAX_LOSSES:
                    raise RunError(
                        f"The engine's process died {losses} times while it scored a few rows:"
                        f" {_first_line(error)}",
                        remedy="see the engine's log in the Ray Dashboard; a smaller"
                        " engine.batch_size or engine.max_model_len needs less memory",
                    ) from error
                if self._is_cancelled():  # Nobody wants the engine that would be started.
                    raise CancelledError from error
            if chunk.losses < 2:
                suspects.appendleft(chunk)
            elif len(chunk.prompts) > 1:
                suspects.extendleft(reversed(chunk.halves()))
            else:
                self._keep(chunk, [_died()], results)

    def _await_engine(self) -> None:
        """Find the engine, and wait until its process answers.

        While Ray starts it again each call fails at once, and its rows would look like the cause.
        """
        import ray

        until_s = time.monotonic() + patience_s(_RETURN_S)
        while True:
            self._engine = self._find()
            try:
                self._result(self._engine.facts.remote())
                return
            except ray.exceptions.RayActorError as error:
                if time.monotonic() > until_s:
                    raise RunError(
                        f"The engine's process died and did not come back: {_first_line(error)}",
                        remedy="`llmops status` shows whether the cluster is ready; `llmops retry`"
                        " scores the rows that are left",
                    ) from error
            if self._is_cancelled():  # Nobody wants the engine that would be started.
                raise CancelledError
            time.sleep(_LOOK_S)

    def _call(self, job: Job, chunk: _Chunk) -> Any:
        return self._engine.generate.remote(
            job, chunk.prompts, chunk.targets, chunk.rows, caller=self._caller
        )

    def _result(self, call: Any) -> Any:
        """Return what a call returns. Raises CancelledError after a stop."""
        import ray

        while not ray.wait([call], timeout=0.5)[0]:
            if self._is_cancelled():
                raise CancelledError
        return ray.get(call)

    def _keep(self, chunk: _Chunk, answers: Sequence[Answer], results: list[Answer | None]) -> None:
        if len(answers) < len(chunk.prompts):
            raise CancelledError  # The engine has dropped the call.
        for n, answer in enumerate(answers):
            answer.id = chunk.first + n
            results[answer.id] = answer
        self._on_answers(answers)


def _died() -> Answer:
    return Answer(0, finish="error", error="the engine's process died while it scored this row")


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
