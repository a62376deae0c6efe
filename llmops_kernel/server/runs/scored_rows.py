"""Routes of two scorings: their metrics, and their rows page by page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import cast

from llmops_kernel.server.base import LLMOpsHandler, RequestError, protected
from llmops_kernel.server.wire.runs import (
    RowsOfKind,
    ScoreComparison,
    ScoredMetric,
    ScoredRow,
    ScoredRows,
)
from llmops_kernel.views.score_comparison import (
    KIND_WORDS,
    ROW_KINDS,
    ComparedRow,
    RowKind,
    ScoreDifference,
    metric_rows,
)

MAX_TEXT = 20_000
MAX_ROWS = 200


class ScoresRequest(LLMOpsHandler):
    """A request about two runs."""

    def refs(self) -> list[str]:
        refs = [ref for ref in self.query("runs").split(",") if ref]
        if len(refs) != 2:
            raise RequestError("name two runs: runs=a,b", status=422)
        return refs


class ScoresHandler(ScoresRequest):
    @protected
    async def get(self) -> None:
        """Reply with metrics, counts of rows and stability of `runs=a,b`."""
        self.reply(await self.ask(self._comparison, self.refs()))

    def _comparison(self, refs: Sequence[str]) -> ScoreComparison:
        compared = self.manager.output_comparisons.of(refs)
        return _wire(compared.difference, row_metrics=compared.metric_names)


class ScoredRowsHandler(ScoresRequest):
    @protected
    async def get(self) -> None:
        """Reply with rows; `kind`, `metric` (what is better), `offset`, `limit` (at most 200)."""
        kind, limit = self.query("kind", "all"), self.query_int("limit", 50)
        if kind not in ROW_KINDS:
            raise RequestError(f"kind={kind!r} is not one of {', '.join(ROW_KINDS)}", status=422)
        offset = self.query_int("offset", 0)
        if not 0 < limit <= MAX_ROWS or offset < 0:
            raise RequestError(
                f"limit must be 1 to {MAX_ROWS}, and offset not negative", status=422
            )
        metric = self.query("metric", "") or None
        self.reply(await self.ask(self._page, self.refs(), kind, metric, offset, limit))

    def _page(
        self, refs: Sequence[str], kind: str, metric: str | None, offset: int, limit: int
    ) -> ScoredRows:
        compared = self.manager.output_comparisons.of(refs)
        page = compared.rows(cast("RowKind", kind), metric=metric, offset=offset, limit=limit)
        return ScoredRows(
            kind=page.kind,
            metric=page.metric,
            total=page.total,
            offset=page.offset,
            rows=[_row(row) for row in page.rows],
        )


def _wire(difference: ScoreDifference, *, row_metrics: Sequence[str]) -> ScoreComparison:
    _, *texts = metric_rows(difference)
    return ScoreComparison(
        before=difference.before,
        after=difference.after,
        metrics=[
            ScoredMetric(**asdict(change), texts=line)
            for change, line in zip(difference.metrics, texts, strict=True)
        ],
        row_metrics=list(row_metrics),
        metric=difference.metric,
        counts=[
            RowsOfKind(kind=kind, label=KIND_WORDS[kind], rows=rows)
            for kind, rows in difference.counts.items()
        ],
        errors_before=difference.errors_before,
        errors_after=difference.errors_after,
        output_rows=difference.stability.rows,
        identical=difference.stability.identical,
        similarity=difference.stability.similarity,
        sampled=difference.stability.sampled,
    )


def _row(row: ComparedRow) -> ScoredRow:
    texts = {name: getattr(row, name) for name in ("prompt", "reference", "before", "after")}
    return ScoredRow(
        key=str(row.key),
        **{name: None if text is None else text[:MAX_TEXT] for name, text in texts.items()},
        before_error=row.before_error,
        after_error=row.after_error,
        before_metrics=dict(row.before_metrics),
        after_metrics=dict(row.after_metrics),
        is_cut=any(text is not None and len(text) > MAX_TEXT for text in texts.values()),
    )


ROUTES = [
    (r"compare/scores", ScoresHandler),
    (r"compare/rows", ScoredRowsHandler),
]
