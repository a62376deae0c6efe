"""Two scorings in the terminal: their metrics, and rows with both outputs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from llmops_kernel.cli.console import facts, plain, table
from llmops_kernel.errors import LLMOpsError
from llmops_kernel.views import format as fmt
from llmops_kernel.views.score_comparison import (
    ComparedRow,
    RowsPage,
    count_lines,
    metric_of,
    metric_rows,
    output_of,
    shown_of,
)

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from llmops_kernel.api import Comparison

_SHOWN = 400
"""Characters of a text that a terminal shows; a file or pipe gets all of it."""


def print_scores(console: Console, compared: Comparison) -> None:
    """Print metrics, counts and stability; for an unfinished scoring why there are none."""
    try:
        scores = compared.scores
    except LLMOpsError as error:
        console.print(f"Rows are not compared: {plain(str(error))}")
        return
    names = {"before": plain(scores.before), "after": plain(scores.after)}
    heads, *lines = metric_rows(scores)
    cells = [[plain(cell) for cell in line] for line in lines]
    console.print(facts(names))
    heads = [plain(head) for head in heads]
    console.print(table(heads, cells, right=heads[1:], optional=("worse", "better")))
    console.print(facts({label: plain(text) for label, text in count_lines(scores)}))
    console.print(f"\nRows: llmops compare {scores.before} {scores.after} --rows flipped")


def print_rows(console: Console, page: RowsPage) -> None:
    """Print rows below each other, each with its texts and metrics."""
    for row in page.rows:
        console.print(_head(row, page.metric), style="bold", markup=False, emoji=False)
        console.print(_texts(row, is_whole=not console.is_terminal))
        console.print()
    console.print(shown_of(page), markup=False)


def _head(row: ComparedRow, metric: str | None) -> str:
    values = f"  {metric} {metric_of(row, metric)}" if metric else ""
    return f"{row.key}{values}"


def _texts(row: ComparedRow, *, is_whole: bool) -> Table:
    """Return texts that are not markup: a model may write `[red]` or `:smile:`."""
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    texts = {
        "prompt": row.prompt,
        "reference": fmt.DASH if row.reference is None else row.reference,
        "before": output_of(row.before, row.before_error),
        "after": output_of(row.after, row.after_error),
    }
    for name, text in texts.items():
        grid.add_row(name, Text(text if is_whole else _cut(text)))
    return grid


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}… ({fmt.count(len(text))} characters)"
