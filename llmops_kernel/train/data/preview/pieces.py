"""The tokens of a row as text, each with whether the loss counts it."""

from __future__ import annotations

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
    one: Formatted, whole: Example, kept: Example, *, tokenizer: Any, most: int | None
) -> ShownRow:
    """Return the row with the text of its first `most` tokens; None: of all."""
    size = len(whole.input_ids)
    end = size if most is None else min(size, most)
    return ShownRow(
        number=one.at.number,
        format=one.format,
        num_tokens=size,
        num_loss=num_counted(kept),
        num_hidden=size - end,
        pieces=_pieces(whole, len(kept.input_ids), end, tokenizer),
    )


def _pieces(whole: Example, kept: int, end: int, tokenizer: Any) -> list[Piece]:
    special = _special_ids(tokenizer)
    found: list[Piece] = []
    before: list[int] = []
    waiting: list[int] = []
    for index in range(end):
        token = whole.input_ids[index]
        kind, is_special = _kind(whole, index, kept), token in special
        waiting.append(token)
        text = (
            _token_text(before, waiting, tokenizer) if not is_special else _name(token, tokenizer)
        )
        following = index + 1 < end and whole.input_ids[index + 1] not in special
        if (
            text.endswith(_UNFINISHED)
            and following
            and len(waiting) < _LONGEST_CHARACTER
            and _kind(whole, index + 1, kept) == kind
            and not is_special
        ):
            continue  # a character of several tokens
        found.append(Piece(text=text, ids=waiting, kind=kind, special=is_special))
        before, waiting = [] if is_special else (before + waiting)[-_CONTEXT:], []
    return found


def _kind(whole: Example, index: int, kept: int) -> Kind:
    if index >= kept:
        return "cut"
    # The first token has none before it that would predict it.
    return "loss" if index and whole.labels[index] != IGNORED else "context"


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
