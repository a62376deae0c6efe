"""`llmops data | mine`: what the model will see of a config's data; hard negatives for them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from llmops_kernel.cli.app import CONFIGS, RUNS, command
from llmops_kernel.cli.runs.submit import Changes, OnCluster, follow_run, lines_on

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from llmops_kernel.services.data_preview import DataPreview, PreviewJob, ShownRow

_ROWS = "Rows of each source that are tokenised, from all over it."
_STYLES = {"loss": "green", "context": "", "cut": "red strike"}


@command(CONFIGS, example="llmops data lora.train.yaml data.max_length=256 --rows 500")
def data(
    config: Annotated[Path, typer.Argument(help="Training config.", metavar="FILE")],
    overrides: Changes = None,
    rows: Annotated[int, typer.Option(help=_ROWS, min=1)] = 2000,
    show: Annotated[int, typer.Option(help="Rows that are shown.", min=0)] = 5,
    row: Annotated[int | None, typer.Option(help="Show only this row, in full.", min=1)] = None,
    evaluation: Annotated[
        bool, typer.Option("--eval", help="Show evaluation rows instead of training rows.")
    ] = False,
    workspace: Annotated[
        Path | None, typer.Option(help="Folder that relative paths start from.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Show the rows as the model will see them, and how long they are. Nothing is started.

    Rows after the chat template, with what counts for the loss; lengths, truncated rows, padding,
    duplicates, evaluation rows among the training rows, steps and tokens of an epoch.
    """
    from llmops_kernel.cli.console import out, print_json
    from llmops_kernel.services import data_preview as service

    job = service.job_of(
        config,
        overrides=overrides or (),
        workspace=workspace,
        rows=rows,
        side="eval" if evaluation else "train",
    ).model_copy(update={"num_shown": show})
    preview = _looked_at(job, row)
    if as_json:
        print_json(preview.model_dump(mode="json"))
    else:
        _print(preview, out())


def _looked_at(job: PreviewJob, row: int | None) -> DataPreview | ShownRow:
    from llmops_kernel.cli.console import out, plain
    from llmops_kernel.services import data_preview as service

    with out(stderr=True).status("Reading the data ...") as status:

        def progress(text: str) -> None:
            status.update(f"{plain(text)} ...")

        if row is None:
            return service.preview(job, progress=progress)
        return service.preview_row(job, row, progress=progress)


def _print(preview: DataPreview | ShownRow, console: Console) -> None:
    from llmops_kernel.services.data_preview import DataPreview

    if isinstance(preview, DataPreview):
        _print_all(preview, console)
    else:
        _print_rows([preview], console)


def _print_all(preview: DataPreview, console: Console) -> None:
    from llmops_kernel.views.preview_facts import facts
    from llmops_kernel.views.preview_text import fact_lines, histogram_lines

    width = min(console.width, 100)
    table = facts(preview)
    for line in fact_lines(table, width=width):
        style = "yellow" if line.startswith("!") else ""
        console.print(line, style=style, markup=False)
    console.print()
    for line in histogram_lines(preview):
        console.print(line, markup=False, soft_wrap=True)
    console.print()
    if preview.rows:
        _print_rows(preview.rows, console)
    console.print(f"  read and tokenised in {preview.took_s:.1f} s", style="dim")


def _print_rows(rows: list[ShownRow], console: Console) -> None:
    """Print tokens in colours where there are some, else with marks."""
    from llmops_kernel.views.preview_text import LEGEND, row_lines

    if console.is_terminal and console.color_system and not console.no_color:
        console.print(_legend())
        for row in rows:
            console.print()
            console.print(_coloured(row))
        return
    console.print(f"  {LEGEND}\n", markup=False)
    for line in row_lines(rows):
        console.print(line, markup=False, soft_wrap=True)


def _legend() -> Text:
    from rich.text import Text

    return Text.assemble(
        "  ",
        ("counts for the loss", _STYLES["loss"]),
        "   is read only   ",
        ("special token", "reverse"),
        "   ",
        ("is beyond max_length", _STYLES["cut"]),
    )


def _coloured(row: ShownRow) -> Text:
    from rich.text import Text

    from llmops_kernel.views.preview_text import hidden_line, row_head, stretches

    parts = [(f"  {row_head(row)}\n", "dim")]
    for stretch in stretches(row.pieces):
        style = f"{_STYLES[stretch.kind]} reverse" if stretch.special else _STYLES[stretch.kind]
        parts.append((stretch.text, style))
    if hidden := hidden_line(row):
        parts.append((f"\n{hidden}", "dim"))
    return Text.assemble(*parts)


# --- `llmops mine`: hard negatives for the next training ---

_DATA = "Table with `query` and `positive`, or a training config."
_OUTPUT = "File to write; default: beside DATA, as NAME-mined.jsonl."
_MARGIN = "How much less similar than the positive they are, as a cosine."
_RELATIVE = "The margin is a share of the positive's similarity."
_CORPUS = "More texts to choose among; default column: text."
_REPLACE = "Drop the negatives that rows have already."
_SCORED = "Go on with this scoring of an interrupted call."


@command(RUNS, example="llmops mine two-tower.train.yaml --run last --output data/mined.jsonl")
def mine(
    data: Annotated[str, typer.Argument(help=_DATA, metavar="DATA")],
    overrides: Changes = None,
    run: Annotated[str, typer.Option(help="Training run whose model compares.")] = "last",
    output: Annotated[Path | None, typer.Option(help=_OUTPUT)] = None,
    negatives: Annotated[int, typer.Option(help="Negatives to find for each row.", min=1)] = 4,
    margin: Annotated[float, typer.Option(help=_MARGIN, min=0)] = 0.05,
    relative: Annotated[bool, typer.Option("--relative", help=_RELATIVE)] = False,
    skip: Annotated[int, typer.Option(help="Nearest ones to leave out.", min=0)] = 0,
    corpus: Annotated[str | None, typer.Option(help=_CORPUS, metavar="FILE[:COLUMN]")] = None,
    replace: Annotated[bool, typer.Option("--replace", help=_REPLACE)] = False,
    scored: Annotated[str | None, typer.Option(help=_SCORED, metavar="RUN")] = None,
    cluster: OnCluster = "local",
    force: Annotated[bool, typer.Option("--force", help="Replace the file.")] = False,
) -> None:
    """Give rows hard negatives: the nearest texts that do not answer a query.

    The run's model scores all texts once; a text that is as near as the positive may be an answer
    that nobody has marked, so the margin leaves it out.
    """
    from llmops_kernel.api.tools import scoring_of
    from llmops_kernel.cli.console import echo, out
    from llmops_kernel.metrics.hard_negatives import Rule
    from llmops_kernel.services.backend import current
    from llmops_kernel.services.scoring.mine import Mining

    rule = Rule(negatives=negatives, margin=margin, relative=relative, skip=skip, replace=replace)
    store, errors = current().store, out(stderr=True)
    mining = Mining(data, run, output, store=store, rule=rule, corpus=corpus, force=force)
    progress, changes = lines_on(errors), overrides or ()
    scoring = scoring_of(mining, scored, cluster=cluster, overrides=changes, progress=progress)
    errors.print(f"If this is interrupted, go on with --scored {scoring.id}")
    follow_run(scoring)
    echo(str(mining.write(scoring.id)))
