"""`llmops runs | query | tag`: list runs with columns of choice, ask in SQL, and tag runs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from llmops_kernel.cli.app import RUNS, command
from llmops_kernel.cli.complete import clusters as complete_cluster
from llmops_kernel.cli.complete import runs as complete_run
from llmops_kernel.cli.runs.submit import RunRef
from llmops_kernel.config.counted import counted

if TYPE_CHECKING:
    from llmops_kernel.api import RunList
    from llmops_kernel.errors import QueryError
    from llmops_kernel.services.query.ask import Answer
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
    group: Annotated[
        str | None, typer.Option(help="Group to put the run into; an empty text takes it out.")
    ] = None,
    project: Annotated[
        str | None, typer.Option(help="Project to put the run into; an empty text takes it out.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Add tags to a run, or remove them; `llmops runs --where "'best' in tags"` lists such runs.

    A run has any number of tags and is in one group at most, which `llmops rerun --group` takes,
    and in one project at most, whose phases `llmops project` shows.
    """
    from llmops_kernel import api
    from llmops_kernel.cli.console import out, plain, print_json

    target = api.attach(run)
    if group is not None:
        target.group = group
    if project is not None:
        target.project = project
    remaining = target.tag(*(tags or ()), remove=remove or ())
    if as_json:
        from llmops_kernel.cli.outputs import of_note

        return print_json(of_note(target))
    return out().print(f"{target.id}: {plain(', '.join(remaining)) or 'no tags'}")


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
    as_json: AsJson = False,
) -> None:
    """Write or show a run's note and title; an empty text removes it."""
    from llmops_kernel import api
    from llmops_kernel.cli.console import facts, out, plain, print_json

    target = api.attach(run)
    if title is not None:
        target.title = title
    if text is not None:
        target.note = sys.stdin.read() if text == "-" else text
    if as_json:
        from llmops_kernel.cli.outputs import of_note

        return print_json(of_note(target))
    notes = target.notes
    values = {"run": target.id, "title": notes.title, "note": notes.note or "–"}
    return out().print(facts({name: plain(value) for name, value in values.items()}))


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
        out().print(facts(_described(target.deletion(), phase=target.notes.phase)))
    for target in targets:
        target.require_ended()
    if not yes:
        subject = f"run {targets[0].id}" if len(targets) == 1 else f"these {len(targets)} runs"
        typer.confirm(f"Delete {subject}?", abort=True)
    for target in targets:
        target.delete()
        out().print(f"Run {target.id} is deleted.")


def _described(preview: DeletionPreview, *, phase: str) -> dict[str, str]:
    from llmops_kernel.cli.console import plain
    from llmops_kernel.views import format as fmt

    size = f"{fmt.byte_size(preview.size_bytes)} in {preview.num_files} files"
    lines = {
        "run": preview.run_id,
        "state": preview.state,
        "phase": phase,
        "folder": preview.folder,
        "size": size,
        "checkpoints": "\n".join(preview.checkpoints),
        "outputs": "\n".join(preview.outputs),
        "kept": "\n".join(preview.kept),
        "resubmitted as": "\n".join(preview.children),
    }
    return {name: plain(value) for name, value in lines.items()}


# --- `llmops query`: questions in SQL to the journals of all runs ---


_NUMBERS = ("BIGINT", "INTEGER", "HUGEINT", "DOUBLE", "FLOAT", "DECIMAL", "UBIGINT", "SMALLINT")
_LONG = 200
"""Characters of a cell; --csv and --json print all of them."""
_SQL = "The question; `-` reads standard input."
_EXAMPLE = 'llmops query "select run, min(loss) from steps group by run order by 2 limit 5"'


@command(RUNS, example=_EXAMPLE)
def query(
    sql: Annotated[str, typer.Argument(help=_SQL, metavar="SQL")] = "",
    tables: Annotated[
        bool, typer.Option("--tables", help="Print the tables and their columns; SQL may name one.")
    ] = False,
    limit: Annotated[int, typer.Option(help="Maximum number of rows of a table.", min=1)] = 100,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print all rows as CSV.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print all rows as JSON.")] = False,
    parquet: Annotated[
        Path | None, typer.Option(help="Write all rows to a Parquet file instead.", metavar="FILE")
    ] = None,
    timeout_s: Annotated[
        float | None, typer.Option("--timeout", help="Stop after this many seconds.", min=0.001)
    ] = None,
    rebuild: Annotated[
        bool, typer.Option("--rebuild", help="Read all journals again, and replace the copy.")
    ] = False,
) -> None:
    """Ask all runs in SQL (DuckDB): runs, steps, evaluations, scores, phases, warnings.

    Reads a columnar copy of the journals that each query brings up to date. Times are UTC, NULL
    is unknown. A query cannot write.
    """
    from llmops_kernel.cli import console

    if tables:
        _print_tables(sql)
        return
    text = sys.stdin.read() if sql == "-" else sql
    if not text.strip():
        raise typer.BadParameter("give a question in SQL, or --tables", param_hint="SQL")
    if sum((as_csv, as_json, parquet is not None)) > 1:
        raise typer.BadParameter("give one of --csv, --json and --parquet")
    errors = console.out(stderr=True)
    try:
        with ExitStack() as stack:
            with errors.status("Looking for new runs ...") as line:
                answer, notices = stack.enter_context(
                    _answered(text, parquet, timeout_s, rebuild, console.progress_on(errors, line))
                )
            for notice in notices:
                errors.print(f"[yellow]Note:[/] {console.plain(notice)}")
            _print_answer(answer, limit=limit, as_csv=as_csv, as_json=as_json, parquet=parquet)
    except KeyboardInterrupt:
        errors.print("Interrupted.")
        raise typer.Exit(130) from None


@contextmanager
def _answered(
    sql: str,
    output: Path | None,
    timeout_s: float | None,
    rebuild: bool,
    report: Callable[[str], None],
) -> Iterator[tuple[Answer, tuple[str, ...]]]:
    from llmops_kernel.errors import QueryError
    from llmops_kernel.services.backend import current
    from llmops_kernel.services.query.ask import answered

    try:
        with answered(
            sql,
            store=current().store,
            output=output,
            timeout_s=timeout_s,
            rebuild=rebuild,
            report=report,
        ) as answer:
            yield answer
    except QueryError as error:
        _point_at(sql, error)
        raise


def _print_answer(
    answer: Answer, *, limit: int, as_csv: bool, as_json: bool, parquet: Path | None
) -> None:
    from llmops_kernel.cli import console
    from llmops_kernel.services.query import ask

    if parquet is not None:
        count = answer.write_parquet(parquet)
        console.out().print(f"Wrote {counted(count, 'row')} to {console.plain(str(parquet))}")
        return
    if as_csv or as_json:
        for text in (ask.csv_lines if as_csv else ask.json_lines)(answer):
            sys.stdout.write(text)
        return
    rows = list(islice(answer.rows(), limit + 1))
    lines = [[console.plain(_short(ask.cell(value))) for value in row] for row in rows[:limit]]
    numbers = [
        name
        for name, kind in zip(answer.columns, answer.types, strict=True)
        if kind.startswith(_NUMBERS)
    ]
    shown = console.table(list(answer.columns), lines, right=numbers, whole=["run"], split=True)
    console.out().print(shown)
    if len(rows) > limit:
        num_more = answer.count() - limit
        console.out(stderr=True).print(f"{num_more:,} more; --limit shows more of them.")


def _short(text: str) -> str:
    line = " ".join(text.splitlines())
    return line if len(line) <= _LONG else f"{line[: _LONG - 1]}…"


def _print_tables(name: str) -> None:
    from llmops_kernel.cli.console import out, plain, table
    from llmops_kernel.errors import QueryError
    from llmops_kernel.services.query.tables import tables

    every = {each.name: each for each in tables(described=True)}
    if name and name not in every:
        raise QueryError(f"There is no table {name!r}.", remedy=f"use one of: {', '.join(every)}")
    console = out()
    for each in [every[name]] if name else every.values():
        console.print(f"[bold]{each.name}[/]  {plain(each.about)}")
        rows = [[column.name, column.type, plain(column.about)] for column in each.columns]
        console.print(table(["column", "type", "what it is"], rows, whole=["column"]))
