"""The terminal's screens of a run, as rich renderables."""

from __future__ import annotations

import re

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from llmops_kernel.cli.console import STATE_COLORS
from llmops_kernel.services.types import (
    EvalEvent,
    FailureEvent,
    PhaseSpan,
    RunRecord,
    RunView,
)
from llmops_kernel.views import format as fmt
from llmops_kernel.views.columns import curve_of, points_of
from llmops_kernel.views.figures import compared_figures, live_figures
from llmops_kernel.views.snapshot import (
    describe,
    elapsed_s,
    eta_text,
    eval_rows,
    evals_of,
    failure,
    first_result,
    later_totals,
    member_table,
    processes_text,
    progress_text,
    restart_text,
    sample_table,
    span_text,
    split_phases,
    until_s,
    waiting_text,
    warnings,
)
from llmops_kernel.views.state_text import shown_outputs, state_text

BAR_WIDTH = 40
WATERFALL_WIDTH = 32
SHOWN_WARNINGS = 3
SHOWN_SAMPLES = 2
"""On the live screen, which must not be taller than a small terminal."""
_SAMPLE_CHARACTERS = 240
_ALWAYS_SHOWN = "mfu"
_FRAME = re.compile(r'\s*File "([^"]+)"(, line \d+.*)')
_OWN_FILE = re.compile(r"/working_dir_files/_ray_pkg_[0-9a-f]+/(.+)$")
_MOST_FRAME_LINES = 12


def screen(view: RunView, record: RunRecord, *, now_s: float, trouble: str = "") -> RenderableType:
    """Return the live view: the waterfall until the first step, then progress and figures."""
    parts: list[RenderableType] = [headline(view, record)]
    if view.rows:
        parts += [progress_line(view, now_s=now_s), figure_line(view)]
        parts += [last_eval(event) for event in evals_of(view)[-1:]]
        parts += [*member_lines(view), *samples(view, limit=SHOWN_SAMPLES)]
    if not view.rows or view.is_outdated:
        parts += [phase_list(view, now_s=now_s), Text(waiting_text(view, now_s=now_s), style="dim")]
    if not view.is_terminal and state_text(view):
        parts.append(Text(state_text(view), style="yellow"))
    parts += processes_line(view)
    if trouble:
        parts.append(Text(trouble, style="yellow"))
    return Group(
        *parts, *notes(view), *(failure_box(event, traceback=False) for event in view.failures)
    )


def headline(view: RunView, record: RunRecord) -> Text:
    state = view.state
    line = Text.assemble(
        ("● ", STATE_COLORS.get(state, "white")),
        (state.capitalize(), f"bold {STATE_COLORS.get(state, 'white')}"),
        "  ",
        (record.run_id, "bold"),
        (f"  {describe(record)} · cluster {record.cluster}", "dim"),
        (f" · attempt {view.attempt}" if view.attempt > 1 else "", "dim"),
    )
    line.no_wrap, line.overflow = True, "ellipsis"
    return line


def phase_list(view: RunView, *, now_s: float) -> Table:
    """Return phases with their seconds; the running one ticks."""
    grid = Table.grid(padding=(0, 1))
    for span in split_phases(view)[0]:
        running = span.end_s is None
        mark = Text("✗", "red") if span.interrupted else Text("…" if running else "✓", "cyan")
        name = Text(span.name.replace("_", " "), "bold" if running else "")
        seconds = Text(span_text(span, now_s=now_s), justify="right")
        grid.add_row(mark, name, seconds, Text(span.detail, "dim"))
    return grid


def processes_line(view: RunView) -> list[RenderableType]:
    """Return warm or cold, and why; nothing until a process has reported."""
    text, warmth = processes_text(view), view.warmth
    style = "yellow" if warmth is not None and warmth.cold else "dim"
    return [Text(f"processes: {text}", style)] if text else []


def progress_line(view: RunView, *, now_s: float) -> Table:
    grid = Table.grid(padding=(0, 2))
    fraction = view.progress.fraction if view.progress else None
    bar = ProgressBar(total=1.0, completed=fraction or 0.0, width=BAR_WIDTH, pulse=fraction is None)
    percent = "" if fraction is None else f"{int(fraction * 100)} %"
    grid.add_row(bar, percent, Text(progress_text(view)), Text(eta_text(view, now_s=now_s), "dim"))
    return grid


def figure_line(view: RunView) -> Table:
    """Return the live figures side by side with the kind's curve below them."""
    grid = Table.grid(padding=(0, 2))
    # A listed figure that is unknown is shown as a dash, the other unknown ones are left out.
    figures = [f for f in live_figures(view) if f.text != fmt.DASH or f.key in _ALWAYS_SHOWN]
    for _ in figures:
        grid.add_column(no_wrap=True)
    grid.add_row(*(Text(figure.label, "dim") for figure in figures))
    grid.add_row(*(Text(figure.text, "bold") for figure in figures))
    outer = Table.grid()
    outer.add_row(grid)
    name, label = curve_of(view)
    spark = fmt.sparkline([value for _, value in points_of(view, name)], BAR_WIDTH)
    if spark:
        outer.add_row(Text.assemble((spark, "cyan"), (f"  {label}, first to last", "dim")))
    return outer


def last_eval(event: EvalEvent) -> Text:
    numbers = (f"{n.removeprefix('eval_')} {fmt.number(v)}" for n, v in event.metrics.items())
    return Text(f"evaluation at step {event.step}: {', '.join(numbers)}")


def member_lines(view: RunView) -> list[RenderableType]:
    """Return numbers of each replica, if there are several."""
    members = member_table(view)
    if len(members.rows) < 2:
        return []
    grid = Table.grid(padding=(0, 2))
    grid.add_row(*(Text(name, "dim") for name in members.columns))
    for row in members.rows:
        grid.add_row(*map(Text, row))
    return [grid]


def samples(view: RunView, *, limit: int | None = None) -> list[RenderableType]:
    """Return the newest samples, the fields of each below each other: columns would be narrow."""
    table = sample_table(view)
    rows = table.rows if limit is None else table.rows[-limit:]
    if not rows:
        return []
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True, style="dim")
    grid.add_column(overflow="fold")
    for row in rows:
        for name, text in zip(table.columns, row, strict=True):
            grid.add_row(Text(name), Text(fmt.one_line(text, _SAMPLE_CHARACTERS)))
        grid.add_row("", "")
    return [Text(f"\nSamples {table.at}", "bold"), grid]


def notes(view: RunView) -> list[RenderableType]:
    """Return restarts and the newest warnings."""
    lines: list[RenderableType] = [
        Text(restart_text(r.from_step, r.cause, r.failures_left), "yellow") for r in view.restarts
    ]
    reported = warnings(view)
    for warning in reported[-SHOWN_WARNINGS:]:
        repeats = f" ({warning.times} times)" if warning.times > 1 else ""
        remedy = f" Try: {warning.remedy}" if warning.remedy else ""
        lines.append(Text(f"warning: {warning.message}{repeats}{remedy}", "yellow"))
    if len(reported) > SHOWN_WARNINGS:
        lines.append(Text(f"and {len(reported) - SHOWN_WARNINGS} more warnings", "dim"))
    return lines


def failure_box(event: FailureEvent, *, traceback: bool = False, hint: str = "") -> Panel:
    """Return the message, where in the user's file, what to do; on request the traceback.

    `hint` says where that is, below the lines of it that are in the user's own files.
    """
    shown = failure(event)
    lines = [Text(shown.message)]
    if shown.remedy:
        lines.append(Text.assemble(("Try: ", "bold"), shown.remedy))
    if traceback and shown.traceback:
        lines += [Text(""), Text(shown.traceback, "dim")]
    elif shown.traceback and hint:
        lines += [Text(""), *(Text(line, "dim") for line in own_frames(shown.traceback))]
        lines.append(Text(hint, "dim"))
    title = " · ".join(filter(None, (shown.error, shown.where, shown.ranks)))
    return Panel(Group(*lines), title=Text(title), title_align="left", border_style="red")


def own_frames(traceback: str) -> list[str]:
    """Return the lines of a traceback that are about files of the workspace, paths in it."""
    frames: list[str] = []
    is_own = False
    for line in traceback.splitlines():
        if match := _FRAME.match(line):
            file = _OWN_FILE.search(match[1])
            is_own = file is not None
            if file is not None:
                frames.append(f'  File "{file[1]}"{match[2]}')
        elif is_own and line.startswith("    "):
            frames.append(line)
        else:
            is_own = False
    return frames[-_MOST_FRAME_LINES:]


def summary(
    view: RunView, record: RunRecord, *, now_s: float, traceback: bool = False
) -> RenderableType:
    """Return what stays in the terminal when the run has ended."""
    parts: list[RenderableType] = [headline(view, record)]
    messages = {event.message for event in view.failures}
    if view.message and view.message not in messages:
        parts.append(Text(view.message))
        if view.remedy:
            parts.append(Text.assemble(("Try: ", "bold"), view.remedy))
    if not view.is_terminal:
        waits = [waiting_text(view, now_s=now_s), state_text(view)]
        parts += [Text(text, style="yellow") for text in waits if text]
    hint = f"The whole traceback: llmops logs {record.run_id}, or --traceback"
    boxes = [failure_box(event, traceback=traceback, hint=hint) for event in view.failures]
    parts += [*notes(view), *boxes]
    parts += [waterfall_table(view, now_s=now_s), *processes_line(view)]
    if view.rows:
        parts.append(figure_table(view, now_s=now_s))
    if evals_of(view):
        parts.append(eval_table(view))
    parts += samples(view)
    if view.outputs:
        parts.append(output_table(view))
    if view.trackers:
        parts.append(tracker_table(view))
    return Group(*parts)


def _table(title: str) -> Table:
    return Table(
        title=f"\n{title}" if title else None,
        title_justify="left",
        title_style="bold",
        box=None,
        pad_edge=False,
        header_style="dim",
    )


def waterfall_table(view: RunView, *, now_s: float) -> Table:
    """Return phases as bars over the time since the submit."""
    spans, later = split_phases(view)
    total = fmt.seconds(view.submit_to_first_step_s)
    first = first_result(view)
    title = "Start-up" if total == fmt.DASH else f"Start-up, submit to {first}: {total}"
    table = _table(title if spans else "")
    table.show_header = False
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True, min_width=WATERFALL_WIDTH)
    table.add_column(no_wrap=True, justify="right")
    # May wrap, its texts may not: so it is the one that is cut where the terminal is narrow.
    table.add_column(style="dim")
    for span, bar in zip(spans, _bars(spans, now_s=now_s), strict=True):
        seconds = span_text(span, now_s=now_s)
        table.add_row(
            Text(span.name.replace("_", " ")),
            bar,
            Text(seconds),
            Text(span.detail, no_wrap=True, overflow="ellipsis"),
        )
    for name, text in later_totals(later, now_s=now_s):
        table.add_row(Text(name), "", Text(text), Text(f"after the {first}"))
    return table


def _bars(spans: list[PhaseSpan], *, now_s: float) -> list[Text]:
    begin_s = min((span.begin_s for span in spans), default=0.0)
    end_s = max((until_s(span, now_s=now_s) for span in spans), default=0.0)
    per_s = WATERFALL_WIDTH / max(end_s - begin_s, 1e-9)
    bars = []
    for span in spans:
        offset = min(round((span.begin_s - begin_s) * per_s), WATERFALL_WIDTH - 1)
        width = max(1, round((until_s(span, now_s=now_s) - begin_s) * per_s) - offset)
        color = "red" if span.interrupted else "cyan"
        bars.append(Text.assemble(" " * offset, ("━" * width, color)))
    return bars


def figure_table(view: RunView, *, now_s: float) -> Table:
    table = _table("Figures")
    table.show_header = False
    took_s = fmt.seconds(elapsed_s(view, now_s=now_s))
    table.add_row("progress", Text(progress_text(view) or fmt.DASH))
    table.add_row("duration", took_s if view.end else f"{took_s} so far")
    unknown = []
    for figure in compared_figures(view):
        if figure.text == fmt.DASH and figure.key != _ALWAYS_SHOWN:
            unknown.append(figure.label)
            continue
        table.add_row(Text(figure.label), Text.assemble(figure.text, (f"  {figure.hint}", "dim")))
    if unknown:
        table.add_row("not known", Text(", ".join(unknown), "dim"))
    return table


def eval_table(view: RunView) -> Table:
    cells = eval_rows(view)
    table = _table("Evaluations")
    for name in cells.columns:
        table.add_column(Text(name), justify="right")
    for row in cells.rows:
        table.add_row(*map(Text, row))
    return table


def output_table(view: RunView) -> Table:
    table = _table("Outputs")
    table.show_header = False
    for output in shown_outputs(view.outputs):
        size = Text(fmt.byte_size(output.size_bytes), "dim")
        path, note = Text(output.path, overflow="fold"), Text(output.note, "dim")
        table.add_row(Text(output.what), path, size, note)
    return table


def tracker_table(view: RunView) -> Table:
    table = _table("Trackers")
    table.show_header = False
    for event in view.trackers:
        style = f"link {event.url}" if event.url else "dim"
        table.add_row(Text(event.name), Text(event.url or event.path, style, overflow="fold"))
    return table
