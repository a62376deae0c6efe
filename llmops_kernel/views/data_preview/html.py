"""A preview of data for a notebook. Every text of the data is escaped."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from llmops_kernel.store.preview_job import DataPreview, Kind, ShownRow
from llmops_kernel.views.data_preview.facts import facts
from llmops_kernel.views.data_preview.histogram import Line, lines
from llmops_kernel.views.data_preview.marks import row_head, stretches
from llmops_kernel.views.data_preview.text import shown_report

# Jupyter's own colours, which follow its theme; the second is for pages without them.
_LOSS = "var(--jp-success-color1, #2e7d32)"
_CUT = "var(--jp-error-color1, #c62828)"
_WARNING = "var(--jp-warn-color1, #b26a00)"
_BAR = "var(--jp-brand-color1, #1976d2)"
_BORDER = "var(--jp-border-color2, #9e9e9e)"
_CELL = "text-align:left;vertical-align:top;padding:1px 12px 1px 0"
_MONO = "font-family:var(--jp-code-font-family, monospace)"
_KIND: dict[Kind, str] = {
    "loss": f"color:{_LOSS};text-decoration:underline",
    "context": "",
    "cut": f"color:{_CUT};text-decoration:line-through",
}
_TITLE: dict[Kind, str] = {
    "loss": "counts for the loss",
    "context": "is read only",
    "cut": "is beyond max_length",
}
_WIDTH = 320


def html_of(found: DataPreview) -> str:
    """Return all of it."""
    rows = "".join(row_html(row) for row in found.rows)
    return f"<div>{_facts(found)}{_histogram(found)}{_legend()}{rows}</div>"


def row_html(row: ShownRow) -> str:
    """Return one row with its tokens."""
    hidden = f"<i>... {row.num_hidden:,} more tokens</i>" if row.num_hidden else ""
    return (
        f'<div style="margin-top:8px;opacity:.75">{escape(row_head(row))}</div>'
        f'<div style="border-left:2px solid {_BORDER};padding-left:8px;white-space:pre-wrap;'
        f'overflow-wrap:anywhere;{_MONO}">{"".join(_tokens(row))}{hidden}</div>'
    )


def _tokens(row: ShownRow) -> Iterator[str]:
    for one in stretches(row.pieces):
        style = _KIND[one.kind] + (";font-weight:600" if one.special else "")
        special = ", a special token" if one.special else ""
        yield (
            f'<span title="{_TITLE[one.kind]}{special}" style="{style}">{escape(one.text)}</span>'
        )


def _facts(found: DataPreview) -> str:
    body = ""
    for one in facts(found):
        colour = f";color:{_WARNING}" if one.level == "warning" else ""
        body += (
            f'<tr><td style="{_CELL};opacity:.75">{escape(one.label)}</td>'
            f'<td style="{_CELL}{colour}">{escape(one.text)}</td></tr>'
        )
    return f"<table><tbody>{body}</tbody></table>"


def _histogram(found: DataPreview) -> str:
    report = shown_report(found)
    most = max((one.rows for one in report.lengths.bins), default=0)
    body = "".join(_bin(one, most) for one in lines(report.lengths, found.max_length))
    head = f"tokens a row, of {report.num_rows:,} rows of {escape(report.source)}"
    return (
        f'<div style="margin-top:8px;opacity:.75">{head}</div><table><tbody>{body}</tbody></table>'
    )


def _bin(line: Line, most: int) -> str:
    if line.bin is None:
        style = f"text-align:left;color:{_CUT};border-top:1px dashed {_CUT};padding:0"
        return f'<tr><td colspan="3" style="{style}">{escape(line.label)}</td></tr>'
    width = max(1, round(_WIDTH * line.bin.rows / most)) if line.bin.rows else 0
    colour = _CUT if line.is_beyond else _BAR
    number = "text-align:right;padding:0 8px 0 0;white-space:nowrap"
    bar = f'<div style="width:{width}px;height:10px;background:{colour}"></div>'
    return (
        f'<tr><td style="{number}">{line.label}</td><td style="{number}">{line.bin.rows:,}</td>'
        f'<td style="text-align:left;padding:0">{bar}</td></tr>'
    )


def _legend() -> str:
    parts = [
        f'<span style="{_KIND["loss"]}">counts for the loss</span>',
        "<span>is read only</span>",
        f'<span style="{_KIND["cut"]}">is beyond max_length</span>',
        '<span style="font-weight:600">special token</span>',
    ]
    return f'<div style="margin-top:8px">{" &nbsp; ".join(parts)}</div>'
