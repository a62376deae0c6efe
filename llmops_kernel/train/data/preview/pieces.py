"""The tokens of a row as text, each with whether the loss counts it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from llmops_kernel.store.preview_job import Kind, Piece, ShownRow
from llmops_kernel.train.data.examples import IGNORED, Example, num_counted
from llmops_kernel.train.data.preview.look import Formatted

_CONTEXT = 4
"""Tokens before a token that are decoded with it: some tokenizers write a first word without its
space."""
_LONGEST_CHARACTER = 8
_UNFINISHED = "\ufffd"


def shown_row(
    one: Formatted,
    wholes: Sequence[Example],
    sequences: Sequence[Example],
    *,
    tokenizer: Any,
    most: int | None,
) -> ShownRow:
    """Return the row with the text of its first `most` tokens; None: of all.

    `sequences`: what the row is trained on. A text is one whole, from whose first token on they are
    without a gap; of a chat there is one for each whole.
    """
    whole = Example(
        [token for one in wholes for token in one.input_ids],
        [label for one in wholes for label in one.labels],
    )
    layout = _Layout.of(wholes, sequences)
    size = len(whole.input_ids)
    end = size if most is None else min(size, most)
    return ShownRow(
        number=one.at.number,
        format=one.format,
        num_tokens=size,
        num_loss=sum(map(num_counted, sequences)),
        num_hidden=size - end,
        num_sequences=len(sequences),
        pieces=_pieces(whole, layout, end, tokenizer),
    )


@dataclass(frozen=True)
class _Layout:
    """Where in the tokens of a row its sequences are."""

    starts: frozenset[int]
    cut: frozenset[int]
    """Tokens that are in none."""

    @classmethod
    def of(cls, wholes: Sequence[Example], sequences: Sequence[Example]) -> _Layout:
        sizes = [len(one.input_ids) for one in wholes]
        kept = [len(one.input_ids) for one in sequences]
        if len(wholes) == 1:  # One after the other, and behind them what is cut.
            ends = list(accumulate(kept))
            return cls(frozenset({0, *ends[:-1]}), frozenset(range(ends[-1], sizes[0])))
        starts = [0, *accumulate(sizes)][:-1]
        found = zip(starts, sizes, kept, strict=True)
        cut = [token for at, size, used in found for token in range(at + used, at + size)]
        return cls(frozenset(starts), frozenset(cut))


def _pieces(whole: Example, layout: _Layout, end: int, tokenizer: Any) -> list[Piece]:
    special = _special_ids(tokenizer)
    found: list[Piece] = []
    before: list[int] = []
    waiting: list[int] = []
    for index in range(end):
        token = whole.input_ids[index]
        kind, is_special = _kind(whole, index, layout), token in special
        waiting.append(token)
        text = (
            _token_text(before, waiting, tokenizer) if not is_special else _name(token, tokenizer)
        )
        following = index + 1 < end and whole.input_ids[index + 1] not in special
        if (
            text.endswith(_UNFINISHED)
            and following
            and len(waiting) < _LONGEST_CHARACTER
            and _kind(whole, index + 1, layout) == kind
            and not is_special
        ):
            continue  # a character of several tokens
        found.append(Piece(text=text, ids=waiting, kind=kind, special=is_special))
        before, waiting = [] if is_special else (before + waiting)[-_CONTEXT:], []
    return found


def _kind(whole: Example, index: int, layout: _Layout) -> Kind:
    if index in layout.cut:
        return "cut"
    # The first token of a sequence has none before it that would predict it.
    counts = index not in layout.starts and whole.labels[index] != IGNORED
    return "loss" if counts else "context"


def _token_text(before: list[int], tokens: list[int], tokenizer: Any) -> str:
    context = _decoded(before, tokenizer)
    both = _decoded([*before, *tokens], tokenizer)
    return both[len(context) :] if both.startswith(context) else _decoded(tokens, tokenizer)


def _decoded(tokens: list[int], tokenizer: Any) -> str:
    if not tokens:
        return ""
    text: str = tokenizer.decode(
        tokens, skip_special_tokens=False, clean_up_tokenization_spaces=False
    )
    return text


def _name(token: int, tokenizer: Any) -> str:
    return str(tokenizer.convert_ids_to_tokens(token))


def _special_ids(tokenizer: Any) -> set[int]:
    added = getattr(tokenizer, "added_tokens_decoder", {})
    return {*tokenizer.all_special_ids, *(i for i, token in added.items() if token.special)}
