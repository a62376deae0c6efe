"""Figures and phases of several runs, a column a run: results first, speed and start-up last."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from llmops_kernel.kinds.registry import kind_named
from llmops_kernel.store.journal.view import RunView
from llmops_kernel.views import format as fmt
from llmops_kernel.views.figures import FigureGroup, compared_figures, group_of
from llmops_kernel.views.panel import ComparedSample, SampledAnswer
from llmops_kernel.views.samples import compared_samples
from llmops_kernel.views.snapshot import progress_text, split_phases

Named = Sequence[tuple[str, RunView]]
"""(name, view), the older first."""
COLORS = ("#1976d2", "#e65100", "#388e3c", "#7b1fa2", "#00838f", "#c2185b", "#5d4037", "#455a64")
CELL = "text-align:left;padding:2px 14px 2px 0"
Lines = list[list[str]]
"""Each a label, then a cell a run."""


def color(index: int) -> str:
    return COLORS[index % len(COLORS)]


def heads(runs: Named) -> list[str]:
    return ["", *(name for name, _ in runs)]


def result_lines(runs: Named) -> Lines:
    """Return the lines of progress and results: evaluation and loss."""
    views = [view for _, view in runs]
    return [
        ["state", *(view.state.capitalize() for view in views)],
        ["progress", *(progress_text(view) or fmt.DASH for view in views)],
        *_figure_lines(views, "result"),
    ]


def speed_lines(runs: Named) -> Lines:
    return _figure_lines([view for _, view in runs], "speed")


def start_lines(runs: Named) -> Lines:
    """Return the lines from submit to the first result: the whole, the processes, each phase."""
    views = [view for _, view in runs]
    seconds = [phase_seconds(view) for view in views]
    warmth = [view.warmth.short if view.warmth else fmt.DASH for view in views]
    phases = [
        [
            name.replace("_", " "),
            *(fmt.seconds(seconds_by_phase.get(name)) for seconds_by_phase in seconds),
        ]
        for name in phase_names(runs)
    ]
    return [*_figure_lines(views, "start"), ["processes", *warmth], *phases]


def table(runs: Named) -> Lines:
    """Return heads, then every line."""
    return [heads(runs), *result_lines(runs), *speed_lines(runs), *start_lines(runs)]


def _figure_lines(views: Sequence[RunView], group: FigureGroup) -> Lines:
    """Return a line a figure that at least one run's kind has; a dash for a run without it."""
    columns = [
        {
            figure.label: figure.text
            for figure in compared_figures(view)
            if group_of(figure) == group
        }
        for view in views
    ]
    labels = dict.fromkeys(label for column in columns for label in column)
    return [[label, *(column.get(label, fmt.DASH) for column in columns)] for label in labels]


def phase_seconds(view: RunView) -> dict[str, float]:
    """Return the seconds of finished start-up phases, those of one name added up."""
    seconds: dict[str, float] = {}
    for span in split_phases(view)[0]:
        if span.duration_s is not None:
            seconds[span.name] = seconds.get(span.name, 0.0) + span.duration_s
    return seconds


def phase_names(runs: Named) -> list[str]:
    """Return the names in order of the kinds' start-up phases; other phases come last."""
    names = dict.fromkeys(name for _, view in runs for name in phase_seconds(view))
    in_order = dict.fromkeys(name for _, view in runs for name in kind_named(view.kind).phases)
    ordered = [name for name in in_order if name in names]
    return ordered + [name for name in names if name not in in_order]


def lines_html(runs: Named, lines: Lines) -> str:
    """Return a table; the runs' names carry the colours of the picture."""
    body = "".join(
        f'<tr><td style="{CELL};opacity:.75">{escape(label)}</td>'
        + "".join(f'<td style="{CELL}">{escape(cell)}</td>' for cell in cells)
        + "</tr>"
        for label, *cells in lines
    )
    return (
        f"<table><thead><tr><th></th>{heads_html(runs)}</tr></thead><tbody>{body}</tbody></table>"
    )


def heads_html(runs: Named) -> str:
    return "".join(
        f'<th style="{CELL}"><span style="color:{color(i)}">■</span> {escape(name)}</th>'
        for i, (name, _) in enumerate(runs)
    )


def lines_text(runs: Named, lines: Lines) -> str:
    """Return the table in plain text."""
    every = [heads(runs), *lines]
    widths = [max(len(line[i]) for line in every) for i in range(len(every[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in every
    )


# --- Answers of several runs side by side, differing words marked ---


MARKED = "samples: {+words+} are not in the first run's answer"
_PROMPT = 120


def samples_text(runs: Named) -> str:
    """Return a block a row: prompt, reference, an answer a line; empty without samples."""
    rows = compared_samples([view for _, view in runs])
    return "\n\n".join([MARKED, *(_row_text(runs, row) for row in rows)]) if rows else ""


def _row_text(runs: Named, row: ComparedSample) -> str:
    lines = [f"row {row.row}: {fmt.one_line(row.prompt, _PROMPT)}"]
    if row.reference:
        lines.append(f"  reference: {row.reference}")
    for (name, _), answer in zip(runs, row.answers, strict=True):
        lines.append(f"  {name}: {answer_text(answer)}")
    return "\n".join(lines)


def answer_text(answer: SampledAnswer | None, *, mark: tuple[str, str] = ("{+", "+}")) -> str:
    """Return an answer in which the new words stand between the marks."""
    if answer is None:
        return fmt.DASH
    begin, end = mark
    pieces = (_marked(text, begin, end) if is_new else text for text, is_new in answer.words)
    return "".join(pieces) + answer.more


def _marked(text: str, begin: str, end: str) -> str:
    """Mark a text, but not the white space around it."""
    inner = text.strip()
    if not inner:
        return text
    start = text.index(inner)
    return f"{text[:start]}{begin}{inner}{end}{text[start + len(inner) :]}"


def samples_html(runs: Named) -> str:
    """Return the same as a table, every text escaped; empty without samples."""
    rows = compared_samples([view for _, view in runs])
    if not rows:
        return ""
    style = f"{CELL};vertical-align:top;white-space:pre-wrap"
    body = "".join(
        f'<tr><td style="{style}">{escape(row.prompt)}</td>'
        f'<td style="{style}">{escape(row.reference or fmt.DASH)}</td>'
        + "".join(f'<td style="{style}">{_answer_html(answer)}</td>' for answer in row.answers)
        + "</tr>"
        for row in rows
    )
    first = "".join(f'<th style="{CELL}">{name}</th>' for name in ("prompt", "reference"))
    return (
        "<p><b>Samples</b></p>"
        f"<table><thead><tr>{first}{heads_html(runs)}</tr></thead><tbody>{body}</tbody></table>"
    )


def _answer_html(answer: SampledAnswer | None) -> str:
    if answer is None:
        return fmt.DASH
    pieces = (
        f"<mark>{escape(text)}</mark>" if is_new else escape(text) for text, is_new in answer.words
    )
    return "".join(pieces) + escape(answer.more)
