"""`llmops samples`: what a model answered, now or from its first evaluation to its last."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from llmops_kernel.cli.app import RUNS, command
from llmops_kernel.cli.complete import runs as complete_run

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from llmops_kernel.views.run_text.samples import SampledRow

_SHOWN = 600
"""Characters of a text that a terminal shows; a file or pipe gets all of it."""


@command(RUNS, example="llmops samples last --row 1")
def samples(
    run: Annotated[str, typer.Argument(metavar="RUN", autocompletion=complete_run)] = "last",
    row: Annotated[
        str | None, typer.Option(help="Show only this row, with all of its answers.")
    ] = None,
    step: Annotated[int | None, typer.Option(help="Show the answers at this step.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, all steps.")] = False,
) -> None:
    """Print the newest answer to each row that the run's evaluations kept."""
    from llmops_kernel import api
    from llmops_kernel.cli import console
    from llmops_kernel.views.run_text.samples import choose_samples, sample_records

    view = api.attach(run).view
    chosen_rows = choose_samples(view, row=row, step=step)
    if as_json:
        console.print_json(list(sample_records(chosen_rows)))
        return
    out = console.out()
    if not chosen_rows:
        out.print(
            "No evaluation has kept an answer. Set evaluation.generate: true, or give"
            " evaluation.prompts a list."
        )
    for sampled in chosen_rows:
        _print_row(out, sampled, every=row is not None)


def _print_row(out: Console, row: SampledRow, *, every: bool) -> None:
    """Print one answer, or each after the one before it with the words that changed."""
    from rich.table import Table
    from rich.text import Text

    newest = row.newest
    fields = {name: text for name, text in newest.items() if name not in ("row", "prediction")}
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, text in fields.items():
        grid.add_row(name.replace("_", " "), Text(_cut(text, out)))
    before: str | None = None
    for step in sorted(row.answers) if every else [max(row.answers)]:
        answer = row.answers[step].get("prediction", "")
        label = f"step {step:,}" if every else "answer"
        grid.add_row(label, marked(before, _cut(answer, out)))
        before = _cut(answer, out)
    head = f"Row {row.name}" if every else f"Row {row.name}, step {max(row.answers):,}"
    out.print(Text(head, "bold"))
    out.print(grid)
    out.print()


def marked(before: str | None, text: str) -> Text:
    """Return the text with the words in bold that `before` lacks."""
    from rich.text import Text

    from llmops_kernel.views.run_text.samples import new_words

    styled = Text()
    for piece, is_new in new_words(before, text):
        styled.append(piece, "bold underline" if is_new else "")
    return styled


def _cut(text: str, out: Console) -> str:
    if len(text) <= _SHOWN or not out.is_terminal:
        return text
    return f"{text[:_SHOWN]}… ({len(text):,} characters)"
