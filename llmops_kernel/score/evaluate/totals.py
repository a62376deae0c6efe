"""Metrics of many rows, as sums that can be added up in any order and written as JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from llmops_kernel.score.evaluate import calibration, grounded
from llmops_kernel.score.evaluate.calibration import BINS, Bin
from llmops_kernel.score.evaluate.row_scorer import RowScores, perplexity
from llmops_kernel.score.evaluate.text_metrics import STATS, corpus_bleu


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
