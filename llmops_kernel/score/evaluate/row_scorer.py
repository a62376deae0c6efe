"""The metrics of one row, and of many rows as sums that can be added up in any order."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any

from llmops_kernel.config.models.score import ScoreConfig
from llmops_kernel.errors import DataError, HookError
from llmops_kernel.score.evaluate import calibration, grounded
from llmops_kernel.score.evaluate.calibration import BINS, Bin
from llmops_kernel.score.evaluate.grounded import Outcome, Refusals
from llmops_kernel.score.evaluate.hooks import ScoreRow, user_metrics
from llmops_kernel.score.evaluate.text_metrics import (
    SENTENCE_BLEU,
    STATS,
    Bleu,
    corpus_bleu,
    exact_match,
    field_f1,
    parsed,
    plain,
    rouge,
)

Values = dict[str, float | None]


@dataclass(slots=True)
class RowScores:
    """The metrics of a row; a metric that this row cannot have is None."""

    values: Values = field(default_factory=dict)
    """Name -> value, the row's columns `metric_<name>`."""
    bleu: list[int] | None = None
    """Counts that the BLEU of all rows is made of."""
    logprob: float | None = None
    tokens: int = 0
    """Tokens whose probability `logprob` is."""
    confidence: float | None = None
    is_correct: bool = False
    outcome: Outcome | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    answer: str
    reference: str | None
    row: Mapping[str, Any]
    logprob: float | None
    tokens: int | None
    label_scores: Mapping[str, float] | None
    value: float | None = None


class RowScorer:
    """Computes the metrics that a score config names, and those of the user's `score_row`.

    Raises MissingDependencyError when a metric's library is not installed.
    """

    def __init__(self, config: ScoreConfig, score_row: ScoreRow | None = None) -> None:
        self._settings = config.evaluation.grounded
        self._is_json = config.task.type == "json"
        self._has_labels = config.task.type == "classify" and not config.task.choices
        self._fields = _schema_fields(config.task.json_schema)
        self._refusals = Refusals(self._settings.refusals)
        self._score_row = score_row
        by_name: dict[str, Callable[[_Row, RowScores], None]] = {
            "exact_match": self._exact_match,
            "field_f1": self._field_f1,
            "rouge": _rouge,
            "bleu": self._bleu,
            "perplexity": _perplexity,
            "calibration": _calibration,
            "grounded": self._grounded,
            "mse": _squared_error,
            # Of the whole table, which needs a number of each row.
            "pearson": _check_number,
            "spearman": _check_number,
        }
        names = dict.fromkeys(config.evaluation.metrics)
        self._bleu_metric = Bleu() if "bleu" in names else None
        self._metrics = [by_name[name] for name in names if name in by_name]

    def row(
        self,
        answer_text: str,
        reference: str | None,
        row: Mapping[str, Any],
        *,
        logprob: float | None = None,
        output_tokens: int | None = None,
        label_scores: Mapping[str, float] | None = None,
        value: float | None = None,
    ) -> RowScores:
        """Return one row's metrics. Raises DataError or HookError, which become the row's error."""
        scored_row = _Row(
            answer=answer_text,
            reference=reference,
            row=row,
            logprob=logprob,
            tokens=output_tokens,
            label_scores=label_scores,
            value=value,
        )
        scores = self._built_in(scored_row)
        if self._score_row is not None:
            scores.values |= user_metrics(
                self._score_row, answer_text, reference, row, reserved=scores.values
            )
        return scores

    def names_of(self, reference: str | None, row: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the names of a row's metrics before it has an answer. Raises DataError.

        The user's hook is called with the reference, else with an empty text, as if it were the
        answer; one that raises on both has no names yet.
        """
        scored_row = _Row(
            answer="", reference=reference, row=row, logprob=None, tokens=None, label_scores=None
        )
        names = dict.fromkeys(self._built_in(scored_row).values)
        if self._score_row is not None:
            for answer in dict.fromkeys((reference or "", "")):
                with suppress(HookError):
                    metrics = user_metrics(self._score_row, answer, reference, row, reserved=names)
                    return (*names, *metrics)
        return tuple(names)

    def _built_in(self, row: _Row) -> RowScores:
        scores = RowScores()
        for metric in self._metrics:
            metric(row, scores)
        return scores

    def _exact_match(self, row: _Row, scores: RowScores) -> None:
        expected = row.reference
        if expected is not None and self._has_labels:
            is_same = set(labels_of(row.answer)) == set(labels_of(expected))
            scores.values["exact_match"] = float(is_same)
            return
        scores.values["exact_match"] = (
            None if expected is None else exact_match(row.answer, expected, is_json=self._is_json)
        )

    def _field_f1(self, row: _Row, scores: RowScores) -> None:
        scores.values |= field_f1(row.answer, row.reference or "", self._fields)

    def _bleu(self, row: _Row, scores: RowScores) -> None:
        if row.reference is None or self._bleu_metric is None:
            scores.values[SENTENCE_BLEU] = None
        else:
            scores.values[SENTENCE_BLEU], scores.bleu = self._bleu_metric.row(
                row.answer, row.reference
            )

    def _grounded(self, row: _Row, scores: RowScores) -> None:
        settings = self._settings
        context = _context(row.row, settings.context)
        is_refusal = self._refusals.found_in(row.answer)
        support = grounded.k_precision(row.answer, context)
        answerable = row.row.get(settings.answerable) if settings.answerable else None
        judged = grounded.outcome(
            is_refusal=is_refusal,
            support=support,
            threshold=settings.support,
            answerable=grounded.as_answerable(answerable),
        )
        scores.outcome = judged
        scores.values["grounded"] = grounded.is_good(judged)
        scores.values["grounded_refused"] = float(is_refusal)
        scores.values["grounded_support"] = None if is_refusal else support


def _rouge(row: _Row, scores: RowScores) -> None:
    if row.reference is None:
        scores.values |= {"rouge1": None, "rouge2": None, "rougeL": None}
    else:
        scores.values |= rouge(row.answer, row.reference)


def labels_of(text: str) -> list[str]:
    """Return the labels of an answer or a reference: of a JSON list, else the text itself."""
    several = parsed(text)
    return [plain(str(label)) for label in several] if isinstance(several, list) else [plain(text)]


def number_of(reference: str) -> float:
    """Return the number of a reference. Raises DataError for a text that is none."""
    with suppress(ValueError):
        if math.isfinite(number := float(reference)):
            return number
    raise DataError(
        f"the reference {reference!r:.60} is not a number",
        remedy="name a column of numbers in prompt.reference",
    )


def _check_number(row: _Row, scores: RowScores) -> None:
    if row.reference is not None:
        number_of(row.reference)


def _squared_error(row: _Row, scores: RowScores) -> None:
    expected = None if row.reference is None else number_of(row.reference)
    is_known = expected is not None and row.value is not None
    scores.values["mse"] = (row.value - expected) ** 2 if is_known else None  # type: ignore[operator]


def _perplexity(row: _Row, scores: RowScores) -> None:
    """Set exp(-sum of log p / tokens): Jelinek et al., "Perplexity", JASA 62 S1, 1977."""
    scores.values["perplexity"] = perplexity(row.logprob, row.tokens or 0)
    if row.logprob is not None and row.tokens:
        scores.logprob, scores.tokens = row.logprob, row.tokens


def perplexity(logprob: float | None, tokens: int) -> float | None:
    """Return exp(-logprob / tokens); None when it is unknown, infinite or too large for a float."""
    if logprob is None or not tokens or not math.isfinite(logprob):
        return None
    try:
        return math.exp(-logprob / tokens)
    except OverflowError:
        return None


def _calibration(row: _Row, scores: RowScores) -> None:
    predicted = calibration.prediction(row.label_scores or {})
    scores.values["confidence"] = predicted[1] if predicted else None
    if predicted and row.reference is not None:
        label, scores.confidence = predicted
        scores.is_correct = calibration.is_correct(label, row.reference)


def _context(row: Mapping[str, Any], column: str) -> str:
    value = row.get(column)
    if isinstance(value, list | tuple):
        return "\n".join(str(part) for part in value)
    if isinstance(value, str):
        return value
    content = f"a {type(value).__name__}" if column in row and value is not None else "nothing"
    raise DataError(
        f"The metric grounded needs the context's text in the column {column!r}, which has"
        f" {content}.",
        remedy="name the column with the text in evaluation.grounded.context",
    )


def _schema_fields(schema: Mapping[str, Any] | None) -> tuple[str, ...] | None:
    """Return the fields of a JSON schema; None without one: each reference names its own."""
    fields = (schema or {}).get("properties")
    return tuple(map(str, fields)) if isinstance(fields, Mapping) else None


# --- Metrics of many rows, as sums that can be added up in any order and written as JSON ---


@dataclass
class Sum:
    """The sum of a metric's values, and the number of their rows."""

    rows: int = 0
    total: float = 0.0


@dataclass
class Totals:
    """The share of a part of the table in the metrics of the whole."""

    num_rows: int = 0
    """All rows, also those with an error."""
    num_errors: int = 0
    num_cut: int = 0
    """Rows whose text was longer than an embedding model reads."""
    sums: dict[str, Sum] = field(default_factory=dict)
    bleu: list[int] = field(default_factory=lambda: [0] * STATS)
    logprob: float = 0.0
    tokens: int = 0
    is_infinite: bool = False
    """A row's tokens have the probability 0, so the perplexity of all rows has no number."""
    bins: list[Bin] = field(default_factory=lambda: [Bin() for _ in range(BINS)])
    outcomes: dict[str, int] = field(default_factory=dict)

    def add(self, row: RowScores) -> None:
        """Add a row that was scored."""
        self.num_rows += 1
        for name, value in row.values.items():
            if value is not None:
                self._sum(name).rows += 1
                self._sum(name).total += value
        if row.bleu is not None:
            self.bleu = [a + b for a, b in zip(self.bleu, row.bleu, strict=True)]
        if row.logprob is not None:
            self._add_logprob(row.logprob, row.tokens)
        if row.confidence is not None:
            bin_ = self.bins[calibration.bin_of(row.confidence)]
            bin_.rows += 1
            bin_.confidence += row.confidence
            bin_.correct += row.is_correct
        if row.outcome is not None:
            self.outcomes[row.outcome] = self.outcomes.get(row.outcome, 0) + 1

    def add_error(self) -> None:
        """Count a row that has no answer, or no metrics."""
        self.num_rows += 1
        self.num_errors += 1

    def merge(self, part: Totals) -> None:
        """Add another part's rows."""
        self.num_rows += part.num_rows
        self.num_errors += part.num_errors
        self.num_cut += part.num_cut
        for name, added in part.sums.items():
            mine = self._sum(name)
            mine.rows += added.rows
            mine.total += added.total
        self.bleu = [a + b for a, b in zip(self.bleu, part.bleu, strict=True)]
        self.logprob += part.logprob
        self.tokens += part.tokens
        self.is_infinite = self.is_infinite or part.is_infinite
        for mine_bin, other_bin in zip(self.bins, part.bins, strict=True):
            mine_bin.rows += other_bin.rows
            mine_bin.confidence += other_bin.confidence
            mine_bin.correct += other_bin.correct
        for name, rows in part.outcomes.items():
            self.outcomes[name] = self.outcomes.get(name, 0) + rows

    def metrics(self) -> dict[str, float]:
        """Return each metric of all rows; one that no row has is not in it."""
        means = {
            name: metric.total / metric.rows for name, metric in self.sums.items() if metric.rows
        }
        values = {**means, **self._not_means()}
        return {name: value for name, value in values.items() if value is not None}

    def rows_of(self) -> dict[str, int]:
        """Return of how many rows each metric is, as rows without a reference have none."""
        return {name: metric.rows for name, metric in self.sums.items()}

    def reliability(self) -> list[dict[str, float | int | None]]:
        """Return the table of the reliability diagram; empty without calibration."""
        return calibration.reliability(self.bins) if any(bin_.rows for bin_ in self.bins) else []

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON, as the ledger keeps it."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Totals:
        """Read what `to_json` gave."""
        parts = dict(data)
        parts["sums"] = {name: Sum(**fields) for name, fields in data["sums"].items()}
        parts["bins"] = [Bin(**fields) for fields in data["bins"]]
        return cls(**parts)

    def _not_means(self) -> dict[str, float | None]:
        """Return the metrics whose value of all rows is not the mean of the rows' values."""
        values: dict[str, float | None] = {}
        if any(self.bleu):
            values["bleu"] = corpus_bleu(self.bleu)
        if self.tokens or self.is_infinite:
            is_known = not self.is_infinite
            values["perplexity"] = perplexity(self.logprob, self.tokens) if is_known else None
        if any(bin_.rows for bin_ in self.bins):
            values["ece"] = calibration.expected_error(self.bins)
        judged = sum(self.outcomes.values())
        for name in grounded.OUTCOMES if judged else ():
            values[f"grounded_{name}"] = self.outcomes.get(name, 0) / judged
        return values

    def _sum(self, name: str) -> Sum:
        return self.sums.setdefault(name, Sum())

    def _add_logprob(self, logprob: float, tokens: int) -> None:
        if math.isfinite(logprob):
            self.logprob += logprob
            self.tokens += tokens
        else:
            self.is_infinite = True
