"""The tokens of a row as text, each with whether the loss counts it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
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
    whole: Example,
    sequences: Sequence[Example],
    *,
    tokenizer: Any,
    most: int | None,
) -> ShownRow:
    """Return the row with the text of its first `most` tokens; None: of all.

    `sequences`: what the row is trained on, from its first token on without a gap.
    """
    ends = list(accumulate(len(one.input_ids) for one in sequences))
    size = len(whole.input_ids)
    end = size if most is None else min(size, most)
    return ShownRow(
        number=one.at.number,
        format=one.format,
        num_tokens=size,
        num_loss=sum(map(num_counted, sequences)),
        num_hidden=size - end,
        num_sequences=len(sequences),
        pieces=_pieces(whole, ends, end, tokenizer),
    )


def _pieces(whole: Example, ends: list[int], end: int, tokenizer: Any) -> list[Piece]:
    kept, starts = ends[-1], {0, *ends}
    special = _special_ids(tokenizer)
    found: list[Piece] = []
    before: list[int] = []
    waiting: list[int] = []
    for index in range(end):
        token = whole.input_ids[index]
        kind, is_special = _kind(whole, index, kept, starts), token in special
        waiting.append(token)
        text = (
            _token_text(before, waiting, tokenizer) if not is_special else _name(token, tokenizer)
        )
        following = index + 1 < end and whole.input_ids[index + 1] not in special
        if (
            text.endswith(_UNFINISHED)
            and following
            and len(waiting) < _LONGEST_CHARACTER
            and _kind(whole, index + 1, kept, starts) == kind
            and not is_special
        ):
            continue  # a character of several tokens
        found.append(Piece(text=text, ids=waiting, kind=kind, special=is_special))
        before, waiting = [] if is_special else (before + waiting)[-_CONTEXT:], []
    return found


def _kind(whole: Example, index: int, kept: int, starts: Collection[int]) -> Kind:
    if index >= kept:
        return "cut"
    # The first token of a sequence has none before it that would predict it.
    counts = index not in starts and whole.labels[index] != IGNORED
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
