"""Texts of tokens so that all of their characters are seen, and cannot act on a terminal."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from llmops_kernel.store.preview_job import Kind, Piece, ShownRow

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
    found: list[Stretch] = []
    for piece in pieces:
        text, last = visible(piece.text), found[-1] if found else None
        if last and (last.kind, last.special) == (piece.kind, piece.special):
            found[-1] = Stretch(last.text + text, piece.kind, piece.special)
        else:
            found.append(Stretch(text, piece.kind, piece.special))
    return found


def plain_tokens(pieces: Sequence[Piece]) -> str:
    """Return the text with marks instead of colours."""
    return "".join(_marked(pieces))


def _marked(pieces: Sequence[Piece]) -> Iterator[str]:
    kind: Kind = "context"
    for one in stretches(pieces):
        if one.kind != kind:
            yield _END[kind] + _BEGIN[one.kind]
            kind = one.kind
        yield one.text
    yield _END[kind]


def row_head(row: ShownRow) -> str:
    """`row 17: chat, 63 tokens, 21 of them count for the loss`."""
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
    how = "" if row.number is None else f" (--row {row.number} shows all)"
    return f"... {row.num_hidden:,} more tokens{how}"
