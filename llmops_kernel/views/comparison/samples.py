"""Answers of several runs to the same rows side by side, the differing words marked."""

from __future__ import annotations

from html import escape
from typing import Any

from llmops_kernel.views import format as fmt
from llmops_kernel.views.comparison.tables import CELL, Named, heads_html
from llmops_kernel.views.run_text.samples import compared_samples

MARKED = "samples: {+words+} are not in the first run's answer"
_PROMPT = 120


def samples_text(runs: Named) -> str:
    """Return a block a row: prompt, reference, an answer a line; empty without samples."""
    rows = compared_samples([view for _, view in runs])
    return "\n\n".join([MARKED, *(_row_text(runs, row) for row in rows)]) if rows else ""


def _row_text(runs: Named, row: dict[str, Any]) -> str:
    lines = [f"row {row['row']}: {fmt.one_line(row['prompt'], _PROMPT)}"]
    if row["reference"]:
        lines.append(f"  reference: {row['reference']}")
    for (name, _), answer in zip(runs, row["answers"], strict=True):
        lines.append(f"  {name}: {answer_text(answer)}")
    return "\n".join(lines)


def answer_text(answer: dict[str, Any] | None, *, mark: tuple[str, str] = ("{+", "+}")) -> str:
    """Return an answer in which the new words stand between the marks."""
    if answer is None:
        return fmt.DASH
    begin, end = mark
    words = (_marked(text, begin, end) if is_new else text for text, is_new in answer["words"])
    return "".join(words) + answer["more"]


def _marked(text: str, begin: str, end: str) -> str:
    """White space stays outside of the marks."""
    inner = text.strip()
    if not inner:
        return text
    at = text.index(inner)
    return f"{text[:at]}{begin}{inner}{end}{text[at + len(inner) :]}"


def samples_html(runs: Named) -> str:
    """Return the same as a table, every text escaped; empty without samples."""
    rows = compared_samples([view for _, view in runs])
    if not rows:
        return ""
    style = f"{CELL};vertical-align:top;white-space:pre-wrap"
    body = "".join(
        f'<tr><td style="{style}">{escape(row["prompt"])}</td>'
        f'<td style="{style}">{escape(row["reference"] or fmt.DASH)}</td>'
        + "".join(f'<td style="{style}">{_answer_html(answer)}</td>' for answer in row["answers"])
        + "</tr>"
        for row in rows
    )
    first = "".join(f'<th style="{CELL}">{name}</th>' for name in ("prompt", "reference"))
    return (
        "<p><b>Samples</b></p>"
        f"<table><thead><tr>{first}{heads_html(runs)}</tr></thead><tbody>{body}</tbody></table>"
    )


def _answer_html(answer: dict[str, Any] | None) -> str:
    if answer is None:
        return fmt.DASH
    words = (
        f"<mark>{escape(text)}</mark>" if is_new else escape(text)
        for text, is_new in answer["words"]
    )
    return "".join(words) + escape(answer["more"])
