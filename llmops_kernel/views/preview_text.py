"""A preview of data as plain text: for notebooks without HTML, files and pipes."""

from __future__ import annotations

import textwrap
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

from llmops_kernel.store.preview_job import (
    Bin,
    DataPreview,
    Kind,
    Lengths,
    Piece,
    ShownRow,
    SourceReport,
)
from llmops_kernel.views.preview_facts import Fact, facts


def text_of(preview: DataPreview, *, width: int = 100) -> str:
    """Return all of it."""
    lines = [*fact_lines(facts(preview), width=width), "", *histogram_lines(preview), ""]
    return "\n".join([*lines, f"  {LEGEND}", "", *row_lines(preview.rows)])


def fact_lines(items: Sequence[Fact], *, width: int) -> Iterator[str]:
    """Yield `label  text` lines; a text that is too long goes on below itself."""
    label = max(len(fact.label) for fact in items) + 4
    for fact in items:
        mark = "! " if fact.level == "warning" else "  "
        head = f"{mark}{fact.label}".ljust(label)
        yield from textwrap.wrap(
            head + fact.text,
            max(width, label + 30),
            subsequent_indent=" " * label,
            break_long_words=False,
            break_on_hyphens=False,
        )


def histogram_lines(preview: DataPreview) -> Iterator[str]:
    """Yield a heading and the histogram of the side whose rows are shown."""
    report = shown_report(preview)
    yield f"  tokens a row, of {report.num_rows:,} rows of {report.source}"
    yield from (f"  {line}" for line in text_lines(report.lengths, preview.max_length))


def shown_report(preview: DataPreview) -> SourceReport:
    """Return the figures of the side whose rows are shown."""
    return preview.train if preview.side == "train" or preview.eval is None else preview.eval


def row_lines(rows: Sequence[ShownRow]) -> Iterator[str]:
    """Yield each row with marks for what the loss counts."""
    for row in rows:
        yield f"  {row_head(row)}"
        body = plain_tokens(row.pieces)
        yield from (f"  | {line}" for line in body.split("\n"))
        if hidden := hidden_line(row):
            yield f"  | {hidden}"
        yield ""


# --- Texts of tokens with all characters visible and inert ---


_NEW_LINE = "↵\n"
_BEGIN: dict[Kind, str] = {"loss": "«", "context": "", "cut": "[cut: "}
_END: dict[Kind, str] = {"loss": "»", "context": "", "cut": "]"}
LEGEND = "« » counts for the loss   [cut: ] is beyond max_length"


@dataclass(frozen=True)
class Stretch:
    """Neighbouring tokens that are shown alike."""

    text: str
    kind: Kind
    special: bool


def visible(text: str) -> str:
    r"""Return the text with line ends marked, and control characters as `\x1b`."""
    return "".join(_visible(character) for character in text.replace("\r\n", "\\r\n"))


def _visible(character: str) -> str:
    if character == "\n":
        return _NEW_LINE
    if character == "\t":
        return "→"
    # Cf: invisible characters, such as those that turn the direction of writing.
    if unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp"):
        code = ord(character)
        return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"
    return character


def stretches(pieces: Sequence[Piece]) -> list[Stretch]:
    """Join neighbouring tokens of one kind; special tokens stay apart from others."""
    result: list[Stretch] = []
    for piece in pieces:
        text, last = visible(piece.text), result[-1] if result else None
        if last and (last.kind, last.special) == (piece.kind, piece.special):
            result[-1] = Stretch(last.text + text, piece.kind, piece.special)
        else:
            result.append(Stretch(text, piece.kind, piece.special))
    return result


def plain_tokens(pieces: Sequence[Piece]) -> str:
    """Return the text with marks instead of colours."""
    return "".join(_marked(pieces))


def _marked(pieces: Sequence[Piece]) -> Iterator[str]:
    kind: Kind = "context"
    for stretch in stretches(pieces):
        if stretch.kind != kind:
            yield _END[kind] + _BEGIN[stretch.kind]
            kind = stretch.kind
        yield stretch.text
    yield _END[kind]


def row_head(row: ShownRow) -> str:
    """Return `row 17: chat, 63 tokens, 21 of them count for the loss`."""
    name = row.where or ("a row" if row.number is None else f"row {row.number:,}")
    cut = sum(len(piece.ids) for piece in row.pieces if piece.kind == "cut")
    tokens = "1 token" if row.num_tokens == 1 else f"{row.num_tokens:,} tokens"
    text = f"{name}: {row.format}, {tokens}, {row.num_loss:,} of them count for the loss"
    if row.num_sequences > 1:
        return f"{text}, in {row.num_sequences:,} sequences"
    return f"{text}, truncated" if cut else text


def hidden_line(row: ShownRow) -> str:
    """Say how many tokens are not shown, and what shows them; empty if none are hidden."""
    if not row.num_hidden:
        return ""
    hint = "" if row.number is None else f" (--row {row.number} shows all)"
    return f"... {row.num_hidden:,} more tokens{hint}"


# --- Histogram of row lengths ---


_FULL = "█"
_PARTS = " ▏▎▍▌▋▊▉"


@dataclass(frozen=True)
class Line:
    """A line of the histogram: a bin, or `max_length` where `bin` is None."""

    label: str
    bin: Bin | None
    is_beyond: bool = False
    """Longer than `max_length`."""


def lines(lengths: Lengths, max_length: int) -> list[Line]:
    """Return the bins in order, with `max_length` between those that it divides."""
    return list(_lines(lengths, max_length))


def _lines(lengths: Lengths, max_length: int) -> Iterator[Line]:
    mark, is_drawn = Line(f"max_length {max_length:,}", None), False
    for length_bin in lengths.bins:
        is_beyond = length_bin.above >= max_length
        if is_beyond and not is_drawn:
            is_drawn = True
            yield mark
        yield Line(_label(length_bin), length_bin, is_beyond)
    if not is_drawn:
        yield mark


def text_lines(lengths: Lengths, max_length: int, *, width: int = 40) -> list[str]:
    """Return the histogram as text of at most about 30 + `width` columns."""
    lines_found = lines(lengths, max_length)
    max_rows = max((each.rows for each in lengths.bins), default=0)
    label = max(len(line.label) for line in lines_found if line.bin) if lengths.bins else 0
    count = len(f"{max_rows:,}")
    return [_text(line, max_rows, label=label, count=count, width=width) for line in lines_found]


def _text(line: Line, max_rows: int, *, label: int, count: int, width: int) -> str:
    if line.bin is None:
        return f"{line.label} ".ljust(label + count + width + 4, "-")
    return (
        f"{line.label:>{label}}  {line.bin.rows:>{count},}  {_bar(line.bin.rows, max_rows, width)}"
    )


def _bar(rows: int, max_rows: int, width: int) -> str:
    """Return a bar; any row at all is seen."""
    eighths = max(1, round(rows / max_rows * width * 8)) if rows else 0
    return (_FULL * (eighths // 8) + _PARTS[eighths % 8]).rstrip()


def _label(length_bin: Bin) -> str:
    if length_bin.up_to is None:
        return f"more than {length_bin.above:,}"
    return f"{length_bin.above + 1:,} to {length_bin.up_to:,}"


# --- HTML for notebooks; every text of the data is escaped ---


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


def html_of(preview: DataPreview) -> str:
    """Return all of it."""
    rows = "".join(row_html(row) for row in preview.rows)
    return f"<div>{_facts(preview)}{_histogram(preview)}{_legend()}{rows}</div>"


def row_html(row: ShownRow) -> str:
    """Return one row with its tokens."""
    hidden = f"<i>... {row.num_hidden:,} more tokens</i>" if row.num_hidden else ""
    return (
        f'<div style="margin-top:8px;opacity:.75">{escape(row_head(row))}</div>'
        f'<div style="border-left:2px solid {_BORDER};padding-left:8px;white-space:pre-wrap;'
        f'overflow-wrap:anywhere;{_MONO}">{"".join(_tokens(row))}{hidden}</div>'
    )


def _tokens(row: ShownRow) -> Iterator[str]:
    for stretch in stretches(row.pieces):
        style = _KIND[stretch.kind] + (";font-weight:600" if stretch.special else "")
        special = ", a special token" if stretch.special else ""
        yield (
            f'<span title="{_TITLE[stretch.kind]}{special}" style="{style}">'
            f"{escape(stretch.text)}</span>"
        )


def _facts(preview: DataPreview) -> str:
    body = ""
    for fact in facts(preview):
        colour = f";color:{_WARNING}" if fact.level == "warning" else ""
        body += (
            f'<tr><td style="{_CELL};opacity:.75">{escape(fact.label)}</td>'
            f'<td style="{_CELL}{colour}">{escape(fact.text)}</td></tr>'
        )
    return f"<table><tbody>{body}</tbody></table>"


def _histogram(preview: DataPreview) -> str:
    report = shown_report(preview)
    max_rows = max((each.rows for each in report.lengths.bins), default=0)
    body = "".join(_bin(line, max_rows) for line in lines(report.lengths, preview.max_length))
    head = f"tokens a row, of {report.num_rows:,} rows of {escape(report.source)}"
    return (
        f'<div style="margin-top:8px;opacity:.75">{head}</div><table><tbody>{body}</tbody></table>'
    )


def _bin(line: Line, max_rows: int) -> str:
    if line.bin is None:
        style = f"text-align:left;color:{_CUT};border-top:1px dashed {_CUT};padding:0"
        return f'<tr><td colspan="3" style="{style}">{escape(line.label)}</td></tr>'
    width = max(1, round(_WIDTH * line.bin.rows / max_rows)) if line.bin.rows else 0
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
