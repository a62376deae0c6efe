"""What several sources are together, and the share of each in an epoch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from llmops_kernel.config.models.data.sources import TrainSource
from llmops_kernel.config.models.train import TrainingConfig
from llmops_kernel.store.preview_job import Epoch, SourceReport, SourceShare
from llmops_kernel.train.data.mixture.rows import MixedRows, exact
from llmops_kernel.train.data.preview.epoch import epoch, sequences
from llmops_kernel.train.data.preview.look import Formatted, Measured
from llmops_kernel.train.data.preview.report import source_report
from llmops_kernel.train.data.preview.wanted import Sample

_MOST_ROWS = 20_000
"""Rows that stand for an epoch, where not all were tokenised."""


class Looked(Protocol):
    """A source that was looked at."""

    @property
    def rows(self) -> Sequence[Formatted]: ...

    @property
    def found(self) -> Sequence[Measured]: ...

    def report(self, max_length: int) -> SourceReport: ...


@dataclass(frozen=True)
class _Part:
    """One source in an epoch."""

    source: TrainSource
    report: SourceReport
    used: list[int]
    """Tokens of each sequence that was looked at and is trained on."""

    @property
    def rows(self) -> int | None:
        """Rows of an epoch."""
        total = self.report.total_rows
        return None if total is None else round(exact(self.source.weight) * total)

    @property
    def tokens(self) -> int | None:
        """Tokens of an epoch."""
        total, seen = self.report.total_rows, self.report.num_rows
        if total is None or not seen:
            return None
        return round(exact(self.source.weight) * self.report.num_tokens * total / seen)


def together(config: TrainingConfig, looked: Sequence[Looked]) -> SourceReport:
    """Return the figures of all rows that were looked at; row numbers say nothing here."""
    data = config.data
    reports = [one.report(data.max_length) for one in looked]
    totals = [one.total_rows for one in reports]
    known = [total for total in totals if total is not None]
    is_sample = any(one.is_sample for one in reports)
    sample = Sample(
        [],
        sum(known) if len(known) == len(totals) else None,
        is_estimate=any(one.is_estimate for one in reports),
        where="from all sources" if is_sample else "",
    )
    rows = [replace(row, at=replace(row.at, number=None)) for one in looked for row in one.rows]
    found = [replace(row, number=None) for one in looked for row in one.found]
    report = source_report(data.train_words, sample, rows, found, max_length=data.max_length)
    broken = [f"{one.source}: {text}" for one in reports for text in one.broken]
    number = sum(one.num_broken for one in reports)
    return report.model_copy(update={"num_broken": number, "broken": broken[:3]})


def shares(config: TrainingConfig, looked: Sequence[Looked]) -> list[SourceShare]:
    """Return what each source is of an epoch."""
    parts = _parts(config, looked)
    rows, tokens = ([getattr(one, name) for one in parts] for name in ("rows", "tokens"))
    return [
        SourceShare(
            source=one.source.path,
            weight=one.source.weight,
            total_rows=one.report.total_rows,
            is_estimate=one.report.is_estimate,
            rows=one.rows,
            row_share=_share(one.rows, rows),
            tokens=one.tokens,
            token_share=_share(one.tokens, tokens),
            is_sample=one.report.is_sample,
        )
        for one in parts
    ]


def _share(part: int | None, all_parts: Sequence[int | None]) -> float | None:
    known = [one for one in all_parts if one is not None]
    if part is None or len(known) < len(all_parts) or not sum(known):
        return None
    return part / sum(known)


def mixed_epoch(config: TrainingConfig, looked: Sequence[Looked], whole: SourceReport) -> Epoch:
    """Return what one pass over all sources is. `whole`: their figures together."""
    parts = _parts(config, looked)
    if not whole.is_sample:
        weights = [one.source.weight for one in parts]
        shuffle = config.data.shuffle
        mixed = MixedRows([one.used for one in parts], weights, seed=config.seed, shuffle=shuffle)
        lengths = list(mixed)
        report = _stand_in(whole, len(lengths), len(lengths), lengths)
        return epoch(config, report, lengths, are_sequences=True)
    rows = [one.rows for one in parts]
    total = None if None in rows else sum(filter(None, rows))
    scale = min(1.0, _MOST_ROWS / total) if total else None
    lengths = [
        one.used[number % len(one.used)]
        for one in parts
        if one.used
        for number in range(_count(one, scale))
    ]
    seen = round(scale * total) if scale and total else len(lengths)
    report = _stand_in(whole, total, seen, lengths)
    found = epoch(config, report, lengths, are_sequences=True)
    return found.model_copy(update={"is_estimate": True})


def _count(part: _Part, scale: float | None) -> int:
    """Return how many sequences stand for a source; without a scale those that were looked at."""
    if scale is None or part.rows is None:
        return len(part.used)
    return max(1, round(scale * part.rows * len(part.used) / part.report.num_rows))


def _stand_in(
    whole: SourceReport, total: int | None, seen: int, lengths: Sequence[int]
) -> SourceReport:
    """Return figures with the rows of an epoch for those of the sources."""
    update = {"total_rows": total, "num_rows": seen, "num_tokens": sum(lengths)}
    return whole.model_copy(update=update)


def _parts(config: TrainingConfig, looked: Sequence[Looked]) -> list[_Part]:
    return [
        _Part(
            source,
            one.report(config.data.max_length),
            sequences(config, [length for row in one.found for length in row.sequences]),
        )
        for source, one in zip(config.data.sources, looked, strict=True)
    ]
