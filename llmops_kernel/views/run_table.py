"""Runs as a table: the same columns for terminal, plain text and HTML, from the kinds' figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

from llmops_kernel.errors import inert
from llmops_kernel.store.journal.summary import RunSummary
from llmops_kernel.store.journal.view import Progress
from llmops_kernel.views import format as fmt

STATE_COLUMN = "state"


@dataclass(frozen=True)
class RunTable:
    """Column names, one line of cells a run, and the columns whose cells are numbers."""

    names: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numbers: tuple[str, ...]

    def text(self) -> str:
        lines = [tuple(map(inert, line)) for line in (self.names, *self.rows)]
        widths = [max(len(line[i]) for line in lines) for i in range(len(self.names))]
        return "\n".join(
            "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
            for line in lines
        )

    def html(self) -> str:
        heads = "".join(f"<th>{escape(name)}</th>" for name in self.names)
        lines = ("".join(f"<td>{escape(cell)}</td>" for cell in row) for row in self.rows)
        body = "".join(f"<tr>{line}</tr>" for line in lines)
        return f"<table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>"


def run_table(
    summaries: Sequence[RunSummary], *, now_s: float, names: Mapping[str, str] | None = None
) -> RunTable:
    """Return a table with one line per run.

    The columns are the listed figures of all kinds in the list, the most important ones first; a
    run whose kind lacks one shows a dash. `names` are by run id.
    """
    called = names or {}
    kinds = {summary.kind for summary in summaries}
    labels = _figure_labels(summaries)
    head = ["run", *(["name"] if called else []), *(["kind"] if len(kinds) > 1 else [])]
    head += [STATE_COLUMN, "progress", *labels, "cluster", "duration", "age", "attempt"]
    rows = []
    for summary in summaries:
        texts = {figure.label: figure.text for figure in summary.figures}
        row = [summary.run_id]
        row += [called.get(summary.run_id, fmt.DASH)] if called else []
        row += [summary.kind] if len(kinds) > 1 else []
        row += [summary.state.capitalize(), progress_cell(summary.progress)]
        row += [texts.get(label, fmt.DASH) for label in labels]
        ages = (summary.took_s(now_s=now_s), now_s - summary.created_s)
        row += [summary.cluster, *map(fmt.seconds, ages), str(summary.attempt)]
        rows.append(tuple(row))
    numbers = ("progress", *labels, "duration", "age", "attempt")
    return RunTable(names=tuple(head), rows=tuple(rows), numbers=numbers)


def _figure_labels(summaries: Sequence[RunSummary]) -> list[str]:
    labels = (f.label for summary in summaries for f in summary.figures if f.listed)
    return list(dict.fromkeys(labels))


def progress_cell(progress: Progress | None) -> str:
    """Return `40 of 225`, `1,200 rows`; steps are not named, as most runs count them."""
    if progress is None:
        return fmt.DASH
    total = "" if progress.total is None else f" of {progress.total:,}"
    unit = "" if progress.unit == "steps" else f" {progress.unit}"
    return f"{progress.done:,}{total}{unit}"
