"""Differences between two runs as HTML for notebooks; every value is escaped."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from llmops_kernel.config.counted import counted
from llmops_kernel.store.diff.files import Difference, FileChange, value_text

# Translucent, so that they show on light and dark themes.
_COLOURS = {"+": "rgba(46,160,67,.25)", "-": "rgba(248,81,73,.25)", "@": "rgba(56,139,253,.2)"}


def table_html(title: str, rows: Sequence[Difference], *, a: str, b: str) -> str:
    """Return the values that differ as a table with a column for each run; empty without rows."""
    if not rows:
        return ""
    head = f"<tr><th>{title}</th><th>{escape(a)}</th><th>{escape(b)}</th></tr>"
    body = "".join(
        f"<tr><td>{escape(path)}</td><td>{escape(value_text(old))}</td>"
        f"<td>{escape(value_text(new))}</td></tr>"
        for path, old, new in rows
    )
    return f"<table>{head}{body}</table>"


def changes_html(changes: Sequence[FileChange]) -> str:
    """Return the files that differ: code open, all others behind one line that counts them."""
    code = "".join(_change_html(change, is_open=True) for change in changes if change.is_code)
    others = [change for change in changes if not change.is_code]
    if not others:
        return code
    title = f"{counted(len(others), 'other file')} (data, logs, outputs)"
    inner = "".join(_change_html(change, is_open=False) for change in others)
    return f"{code}<details><summary>{title}</summary>{inner}</details>"


def _change_html(change: FileChange, *, is_open: bool) -> str:
    lines = "".join(_line_html(line) for line in change.unified_diff.splitlines())
    title = f"{change.kind} <code>{escape(change.path)}</code> {change.counts}".rstrip()
    return (
        f"<details{' open' if is_open else ''}><summary>{title}</summary>"
        f'<pre style="overflow-x:auto;line-height:1.4">{lines}</pre></details>'
    )


def _line_html(line: str) -> str:
    colour = _COLOURS.get(line[:1])
    style = f' style="background:{colour}"' if colour else ""
    return f"<span{style}>{escape(line)}</span>\n"
