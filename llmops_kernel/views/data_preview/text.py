"""A preview of data as plain text: for notebooks without HTML, files and pipes."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from llmops_kernel.store.preview_job import DataPreview, ShownRow, SourceReport
from llmops_kernel.views.data_preview.facts import Fact, facts
from llmops_kernel.views.data_preview.histogram import text_lines
from llmops_kernel.views.data_preview.marks import LEGEND, hidden_line, plain_tokens, row_head


def text_of(found: DataPreview, *, width: int = 100) -> str:
    """Return all of it."""
    lines = [*fact_lines(facts(found), width=width), "", *histogram_lines(found), ""]
    return "\n".join([*lines, f"  {LEGEND}", "", *row_lines(found.rows)])


def fact_lines(found: Sequence[Fact], *, width: int) -> Iterator[str]:
    """Yield `label  text` lines; a text that is too long goes on below itself."""
    label = max(len(one.label) for one in found) + 4
    for one in found:
        mark = "! " if one.level == "warning" else "  "
        head = f"{mark}{one.label}".ljust(label)
        yield from textwrap.wrap(
            head + one.text,
            max(width, label + 30),
            subsequent_indent=" " * label,
            break_long_words=False,
            break_on_hyphens=False,
        )


def histogram_lines(found: DataPreview) -> Iterator[str]:
    """Yield a heading and the histogram of the side whose rows are shown."""
    report = shown_report(found)
    yield f"  tokens a row, of {report.num_rows:,} rows of {report.source}"
    yield from (f"  {line}" for line in text_lines(report.lengths, found.max_length))


def shown_report(found: DataPreview) -> SourceReport:
    """Return the figures of the side whose rows are shown."""
    return found.train if found.side == "train" or found.eval is None else found.eval


def row_lines(rows: Sequence[ShownRow]) -> Iterator[str]:
    """Yield each row with marks for what the loss counts."""
    for row in rows:
        yield f"  {row_head(row)}"
        body = plain_tokens(row.pieces)
        yield from (f"  | {line}" for line in body.split("\n"))
        if hidden := hidden_line(row):
            yield f"  | {hidden}"
        yield ""
