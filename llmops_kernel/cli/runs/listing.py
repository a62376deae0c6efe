"""`llmops runs | tag`: list runs with columns of choice, and tag them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from llmops_kernel.cli.app import RUNS, command
from llmops_kernel.cli.complete import clusters as complete_cluster
from llmops_kernel.cli.complete import runs as complete_run
from llmops_kernel.cli.runs.submit import RunRef

if TYPE_CHECKING:
    from llmops_kernel.api import RunList
    from llmops_kernel.errors import QueryError
    from llmops_kernel.services.types import DeletionPreview


Where = Annotated[
    str, typer.Option(help="Only runs that match, by figures, config fields, state, tags, dates.")
]
Sort = Annotated[
    str, typer.Option(help="Columns to sort by; a leading minus sorts in descending order.")
]
Columns = Annotated[
    str | None,
    typer.Option(help="Columns to show, with commas between them; `help` lists all."),
]
Name = Annotated[str | None, typer.Option(help="Only runs of this config name.")]
ClusterName = Annotated[
    str | None, typer.Option(help="Only runs of this cluster.", autocompletion=complete_cluster)
]
Limit = Annotated[int, typer.Option(help="Maximum number of runs.", min=1)]
Starred = Annotated[bool, typer.Option("--starred", help="Only runs with a star.")]
Every = Annotated[
    bool, typer.Option("--all", help="Include runs of `llmops bench` and `llmops doctor`.")
]
OutFile = Annotated[
    Path | None, typer.Option("--out", "-o", help="Write a .csv or .parquet file instead.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@command(RUNS, example='llmops runs --where "eval_loss < 0.4 and method.r == 8" --sort eval_loss')
def runs(
    where: Where = "",
    sort: Sort = "",
    columns: Columns = None,
    name: Name = None,
    cluster: ClusterName = None,
    limit: Limit = 20,
    starred: Starred = False,
    every: Every = False,
    out: OutFile = None,
    as_json: AsJson = False,
) -> None:
    """List runs, newest first.

    A run whose value is unknown never matches a condition on it, nor the opposite condition.
    """
    from llmops_kernel import api
    from llmops_kernel.errors import QueryError

    if columns == "help":
        _print_columns()
        return
    names = None if columns is None else columns.split(",")
    only: dict[str, Any] = {"name": name, "cluster": cluster, "starred": True if starred else None}
    try:
        listing = api.runs(where, sort=sort, columns=names, limit=limit, all=every, **only)
    except QueryError as error:
        _point_at(where, error)
        raise
    _print(
        listing, has_columns=names is not None, is_filtered=bool(where), out=out, as_json=as_json
    )


def _print(
    listing: RunList, *, has_columns: bool, is_filtered: bool, out: Path | None, as_json: bool
) -> None:
    from llmops_kernel.cli import console

    if out is not None:
        path = listing.save(out)
        console.out().print(f"Wrote {len(listing)} runs to {console.plain(str(path))}")
    elif as_json and has_columns:
        console.print_json(listing.records())
    elif as_json:
        names = listing.names
        console.print_json(
            [{**s.model_dump(mode="json"), "label": names[s.run_id]} for s in listing.summaries]
        )
    elif not listing:
        message = "No run matches." if is_filtered else "No run yet."
        hint = "" if is_filtered else " Submit one: llmops submit CONFIG.train.yaml"
        console.out().print(message + hint)
    else:
        from llmops_kernel.cli.runs.tables import chosen_table, runs_table

        table = (chosen_table if has_columns else runs_table)(listing.table())
        console.out().print(table)


def _point_at(where: str, error: QueryError) -> None:
    """Print the filter with a mark below what is wrong; the error follows."""
    from llmops_kernel.cli.console import out, plain

    if error.position is not None and "\n" not in where:
        console = out(stderr=True)
        console.print(f"  {plain(where)}", soft_wrap=True)
        console.print(f"  {' ' * error.position}[red]^[/]", soft_wrap=True)


def _print_columns() -> None:
    from llmops_kernel import api
    from llmops_kernel.cli.console import out, plain, table

    columns = api.runs(columns=[], limit=None, all=True).all_columns
    rows = [[plain(each.name), each.source, plain(each.label)] for each in columns]
    out().print(table(["column", "from", "label"], rows))


@command(RUNS, example="llmops tag last best paper")
def tag(
    run: Annotated[str, typer.Argument(help="A run.", autocompletion=complete_run)],
    tags: Annotated[list[str] | None, typer.Argument(help="Tags to add.")] = None,
    remove: Annotated[list[str] | None, typer.Option("--remove", help="A tag to remove.")] = None,
) -> None:
    """Add tags to a run, or remove them; `llmops runs --where "'best' in tags"` lists such runs."""
    from llmops_kernel import api
    from llmops_kernel.cli.console import out, plain

    target = api.attach(run)
    remaining = target.tag(*(tags or ()), remove=remove or ())
    out().print(f"{target.id}: {plain(', '.join(remaining)) or 'no tags'}")


# --- `llmops star | note | rm`: mark, annotate and delete runs ---


@command(RUNS, example="llmops star last")
def star(
    run: RunRef = "last",
    off: Annotated[bool, typer.Option("--off", help="Remove the star.")] = False,
) -> None:
    """Mark a run as worth keeping; `llmops runs --starred` lists such runs."""
    from llmops_kernel import api
    from llmops_kernel.cli.console import out

    target = api.attach(run)
    if off:
        target.unstar()
    else:
        target.star()
    out().print(f"{'Star removed' if off else 'Starred'}: {target.id}")


@command(RUNS, example='llmops note last "lower rate, same data" --title "lr 5e-5"')
def note(
    run: RunRef = "last",
    text: Annotated[str | None, typer.Argument(help="The note; `-` reads standard input.")] = None,
    title: Annotated[str | None, typer.Option(help="A readable title.")] = None,
) -> None:
    """Write or show a run's note and title; an empty text removes it."""
    from llmops_kernel import api
    from llmops_kernel.cli.console import facts, out, plain

    target = api.attach(run)
    if title is not None:
        target.title = title
    if text is not None:
        target.note = sys.stdin.read() if text == "-" else text
    notes = target.notes
    values = {"run": target.id, "title": notes.title, "note": notes.note or "–"}
    out().print(facts({name: plain(value) for name, value in values.items()}))


@command(RUNS, example="llmops rm last --yes")
def rm(
    runs: Annotated[
        list[str],
        typer.Argument(
            help="Run ids, their unique beginnings, or `last`.",
            metavar="RUN...",
            autocompletion=complete_run,
        ),
    ],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
) -> None:
    """Delete runs that have ended, with their journals, logs, checkpoints and outputs.

    Shows what will be deleted and asks for confirmation. Nothing is deleted if one has not ended.
    """
    from llmops_kernel import api
    from llmops_kernel.cli.console import facts, out

    targets = list({run.id: run for run in map(api.attach, runs)}.values())
    for target in targets:
        out().print(facts(_described(target.deletion())))
    for target in targets:
        target.require_ended()
    if not yes:
        subject = f"run {targets[0].id}" if len(targets) == 1 else f"these {len(targets)} runs"
        typer.confirm(f"Delete {subject}?", abort=True)
    for target in targets:
        target.delete()
        out().print(f"Run {target.id} is deleted.")


def _described(preview: DeletionPreview) -> dict[str, str]:
    from llmops_kernel.cli.console import plain
    from llmops_kernel.views import format as fmt

    size = f"{fmt.byte_size(preview.size_bytes)} in {preview.num_files} files"
    lines = {
        "run": preview.run_id,
        "state": preview.state,
        "folder": preview.folder,
        "size": size,
        "checkpoints": "\n".join(preview.checkpoints),
        "outputs": "\n".join(preview.outputs),
        "kept": "\n".join(preview.kept),
        "resubmitted as": "\n".join(preview.children),
    }
    return {name: plain(value) for name, value in lines.items()}
