"""Runs as terminal tables: the list, one run in full, several side by side, two scorings."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from llmops_kernel.cli.console import facts, plain, state, table
from llmops_kernel.errors import LLMOpsError
from llmops_kernel.views import format as fmt
from llmops_kernel.views.figures import (
    STATE_COLUMN,
    FigureGroup,
    RunTable,
    compared_figures,
    group_of,
    progress_cell,
)
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
    from pathlib import Path

    from rich.console import Console
    from rich.table import Table

    from llmops_kernel.api import Comparison, Run
    from llmops_kernel.cli.fitting_table import FittingTable
    from llmops_kernel.metrics.events import ProfileEvent
    from llmops_kernel.views.comparison_matrix import Matrix

_OPERATORS = 12


def runs_table(runs: RunTable) -> FittingTable:
    """Return one line a run; a narrow terminal gets fewer figures."""
    position = runs.names.index(STATE_COLUMN)
    rows = [
        [*map(plain, row[:position]), state(row[position]), *map(plain, row[position + 1 :])]
        for row in runs.rows
    ]
    non_figures = ("progress", "duration", "age", "attempt")
    figures = [name for name in runs.numbers if name not in non_figures]
    # The first figure stays; the less important ones are left out first, before an id is broken.
    extra = [*map(plain, reversed(figures[1:]))]
    optional = ("attempt", "cluster", *extra, "duration", "progress", "age", "name")
    return table(
        [*map(plain, runs.names)],
        rows,
        right=[*map(plain, runs.numbers)],
        optional=optional,
        whole=["run"],
    )


def chosen_table(runs: RunTable) -> FittingTable:
    """Return exactly the columns that the user chose."""
    rows = [[*map(plain, row)] for row in runs.rows]
    names = [*map(plain, runs.names)]
    return table(names, rows, right=[*map(plain, runs.numbers)], whole=["run"], split=True)


def print_run(console: Console, run: Run, *, traceback: bool = False) -> None:
    """Print one run in full: its figures and phases, then its record and its folder."""
    from llmops_kernel.cli.runs.live_parts import summary

    console.print(summary(run.view, run.record, now_s=time.time(), traceback=traceback))
    print_losses(console, run)
    print_memory(console, run)
    print_system(console, run)
    if run.view.profiles:
        print_profile(console, run, run.view.profiles[-1])
    console.print("\nRecord", style="bold")
    console.print(facts(_record(run)))


def print_losses(console: Console, run: Run) -> None:
    """Print where the FLOPs of a training go and what bounds it; nothing where it is not known."""
    from llmops_kernel.views.waterfall import TITLE, lines, note_of

    losses, verdict = run.waterfall(), run.verdict()
    if losses is None:
        return
    console.print(f"\n{TITLE}", style="bold")
    console.print(plain("\n".join(lines(losses))), highlight=False)
    console.print(plain(note_of(losses)), style="dim")
    if verdict is not None:
        console.print(plain(verdict.sentence), highlight=False)


def print_memory(console: Console, run: Run) -> None:
    """Print the planned memory of a GPU beside the measured one; nothing where one is not known."""
    from llmops_kernel.views.plan import MEMORY_TITLE, memory_lines
    from llmops_kernel.views.snapshot import memory_of

    bars = memory_of(run.view)
    if bars:
        console.print(f"\n{MEMORY_TITLE}", style="bold")
        console.print(plain("\n".join(memory_lines(bars))), highlight=False)


def print_system(console: Console, run: Run) -> None:
    """Print the newest measurements of workers and hosts; nothing before there are any."""
    from llmops_kernel.views.system import host_table, worker_table

    for title, rows in (("Workers", worker_table(run.view)), ("Hosts", host_table(run.view))):
        if rows.rows:
            console.print(f"\n{title}", style="bold")
            cells = [[*map(plain, row)] for row in rows.rows]
            console.print(table([*map(plain, rows.columns)], cells, split=True))


def print_profile(console: Console, run: Run, profile: ProfileEvent) -> None:
    """Print the operators of a profile, where its ranks stood, and where its files are."""
    from llmops_kernel.views.profile import operator_table, overhead, path_of, title_of
    from llmops_kernel.views.system import group_table

    operators = operator_table(profile)
    cells = [[plain(cell) for cell in row] for row in operators.rows[:_OPERATORS]]
    title = f"\nProfile of {title_of(profile)}, time of operators themselves on rank 0"
    console.print(title, style="bold")
    console.print(table(operators.columns, cells, right=operators.columns[1:]))
    if profile.groups:
        groups = group_table(profile.groups)
        console.print("Where ranks stood in these steps (py-spy)", style="bold")
        console.print(table(groups.columns, [[*map(plain, row)] for row in groups.rows]))
    console.print(overhead(run.view, profile), style="dim")
    place = plain(path_of(run.view, profile))
    console.print(f"Timelines for ui.perfetto.dev: {place}", highlight=False)


def print_stall(console: Console, run: Run, *, dump: Path | None = None) -> None:
    """Print where the workers stand, now or when it was last looked; write it into `dump`."""
    from llmops_kernel.metrics.system import stacks_text
    from llmops_kernel.views.system import stall_head

    stalls = run.view.stalls
    if not stalls:
        console.print(f"Run {run.id}: no stall was seen.")
        return
    newest, is_now = stalls[-1], run.view.stall is not None
    text = stacks_text(newest.groups)
    when = "now" if is_now else f"at {time.strftime('%H:%M:%S', time.localtime(newest.time_s))}"
    console.print(plain(f"{stall_head(newest)} Seen {when}."), style="yellow")
    console.print(plain(f"{newest.message}\n"), highlight=False)
    console.print(plain(text), highlight=False, soft_wrap=True)
    if dump is not None:
        dump.write_text(f"{stall_head(newest)}\n{newest.message}\n\n{text}\n")
        console.print(f"Stacks: {dump}")


def _record(run: Run) -> dict[str, str]:
    record, checkpoints = run.record, run.view.checkpoints
    return {
        "submitted": plain(time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(record.created_s))),
        "by agent": plain(_acts(run)),
        "cluster": plain(record.cluster),
        "project": plain(" ".join(filter(None, (run.notes.project, run.notes.phase)))),
        "config": plain(record.config_path or ""),
        "overrides": plain(", ".join(f"{k}={v}" for k, v in record.overrides.items())),
        "re-submitted from": plain(record.parent or ""),
        "code": plain(_code(run)),
        "planned": plain(_planned(run)),
        "checkpoint": plain(checkpoints[-1].path) if checkpoints else "",
        "folder": plain(str(run.folder.root)),
    }


def _acts(run: Run) -> str:
    """Return what agents did to the run, a line each with the reason that they gave."""
    return "\n".join(f"{act.action} by {act.agent}: {act.reason}" for act in run.acts)


def _planned(run: Run) -> str:
    from llmops_kernel.views.plan import beside_measured

    start = getattr(run.view, "start", None)
    return beside_measured(start.planned) if start is not None else ""


def _code(run: Run) -> str:
    git, code = run.record.git, run.record.code_hash[:12]
    if git is None:
        return code
    return f"{code}, git {git.revision[:12]}{' with changes (git.diff)' if git.dirty else ''}"


def compare_table(runs: Sequence[Run], names: Mapping[str, str]) -> FittingTable:
    """Return one column per run: its name, what differs, then evaluation and loss."""
    views = [run.view for run in runs]
    rows = [["name", *(plain(names[run.id]) for run in runs)], *_differing(runs)]
    rows += [["state", *(state(view.state) for view in views)]]
    rows.append(["progress", *(plain(progress_cell(view.progress)) for view in views)])
    rows += _figure_rows(runs, "result")
    return table(["", *(run.id for run in runs)], rows, split=True)


def matrix_table(matrix: Matrix) -> FittingTable:
    """Return one line per run: what differs, then figures with their change from the baseline.

    A narrow terminal gets the columns in several tables below each other.
    """
    from llmops_kernel.views.comparison_matrix import cells_of, heads_of

    rows = [[*map(plain, cells_of(matrix, line))] for line in matrix.lines]
    for row, line in zip(rows, matrix.lines, strict=True):
        row[0] = f"[bold]{row[0]}[/]" if line.is_mean else row[0]
    return table([*map(plain, heads_of(matrix))], rows, split=True)


def print_ids(console: Console, runs: Sequence[Run], names: Mapping[str, str]) -> None:
    """Print the id behind each name: commands take ids."""
    width = max(len(names[run.id]) for run in runs)
    for run in runs:
        console.print(f"{plain(names[run.id].ljust(width))}  {run.id}", soft_wrap=True)


def _differing(runs: Sequence[Run]) -> list[list[str]]:
    """Return the config values that differ, and the code where it does."""
    from llmops_kernel.config.reading.document import flatten

    configs = [flatten(run.record.config) for run in runs]
    rows = []
    for path in sorted({path for config in configs for path in config}):
        values = [str(config.get(path, fmt.DASH)) for config in configs]
        if len(set(values)) > 1:
            rows.append([f"[bold]{plain(path)}[/]", *(plain(value) for value in values)])
    codes = [run.record.code_hash[:12] for run in runs]
    return [*rows, ["[bold]code[/]" if len(set(codes)) > 1 else "code", *codes]]


def _figure_rows(runs: Sequence[Run], *groups: FigureGroup) -> list[list[str]]:
    figures = [
        {f.label: f.text for f in compared_figures(run.view) if group_of(f) in groups}
        for run in runs
    ]
    labels = dict.fromkeys(label for texts in figures for label in texts)
    return [
        [plain(label), *(plain(texts.get(label, fmt.DASH)) for texts in figures)]
        for label in labels
    ]


def speed_table(runs: Sequence[Run]) -> FittingTable:
    """Return speed, memory, cost and start-up, a column a run: they come last."""
    rows = _figure_rows(runs, "speed", "start")
    return table(["", *(run.id for run in runs)], rows, split=True)


def print_compared_samples(console: Console, runs: Sequence[Run], names: Mapping[str, str]) -> None:
    """Print the newest answers to the same rows, the words bold that the first run's lacks."""
    from rich.text import Text

    from llmops_kernel.views.comparison_tables import samples_text

    samples = samples_text([(names[run.id], run.view) for run in runs])
    if samples:
        text = Text(f"\n{samples}\n")
        text.highlight_regex(r"(?s)\{\+.+?\+\}", "bold")
        console.print(text)


# --- Two scorings in the terminal: their metrics, and rows with both outputs ---


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
