"""Looks at rows as the workers will: format, template, tokens, what is cut and what counts."""

from __future__ import annotations

import hashlib
import itertools
import json
import random
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Any, TypeVar

from llmops_kernel.config.models.sections import DataConfig
from llmops_kernel.config.objective_rows import PART_NAMES
from llmops_kernel.config.row_formats import Use, recognised
from llmops_kernel.errors import DataError, HookError
from llmops_kernel.store.preview_job import Kind, Piece, ShownRow
from llmops_kernel.train.data.examples import (
    IGNORED,
    Example,
    divided,
    each_part,
    num_counted,
    num_learnt,
    prepare_row,
    shape_row,
    tokenise_row,
)
from llmops_kernel.train.data.skipped import Fields, sayable
from llmops_kernel.train.data.sources import Row, Source
from llmops_kernel.train.hooks import Hooks

T = TypeVar("T")
_OF_SAMPLE, _OF_WHOLE = 100, 750
"""Characters that are tokenised for each requested row. With 2,000 rows a quarter of a
second of a sample; of a source that was read whole, whose figures are exact then, two seconds."""


@dataclass(frozen=True)
class Formatted:
    """A row in its format, before it is tokenised."""

    source_row: NumberedRow
    format: str
    row: Row
    """`{"messages": [...]}`, `{"text": ...}`, or `{"parts": [...]}` of several of these."""
    uses: tuple[Use, ...] = ()
    """Notes on its fields."""
    unused: tuple[str, ...] = ()
    """Its columns that are not used."""

    @property
    def parts(self) -> list[Row]:
        """Return the texts and chats that it has: one, but where an objective compares several."""
        return self.row.get("parts") or [self.row]

    @property
    def names(self) -> list[str]:
        """Return what each part is; empty for a row that is only one text or chat."""
        if "parts" not in self.row:
            return []
        target, named = self.row.get("target"), PART_NAMES.get(self.format, ())
        rest = len(self.parts) - len(named)
        names = [*named[: len(self.parts)], *(named[-1:] or ("",)) * rest]
        return names if target is None else [f"{name} ({target})".strip() for name in names]

    @property
    def characters(self) -> int:
        return sum(
            len(part["text"])
            if "text" in part
            else sum(len(message["content"]) for message in part["messages"])
            for part in self.parts
        )

    @property
    def is_answered(self) -> bool:
        """Return whether the assistant says anything; a plain text has no answer."""
        return "parts" in self.row or any(
            "text" in part
            or any(
                message["role"] == "assistant"
                and (message["content"].strip() or message.get("tool_calls"))
                for message in part["messages"]
            )
            for part in self.parts
        )


@dataclass(frozen=True)
class RowSizes:
    """The sizes of a tokenised row: its tokens would need much memory."""

    number: int | None
    format: str
    length: int
    """Tokens before the cut."""
    num_tokens: int
    """Tokens that are left of it: after the cut, or in all pieces of a long text."""
    num_loss: int
    """Tokens that the loss counts."""
    sequences: tuple[int, ...] = ()
    """Tokens of each sequence that it becomes and that is trained on."""
    is_cut: bool = False
    """True if it is longer than `max_length` and truncated."""
    is_apart: bool = False
    """True if it is a chat whose answers are in several sequences, see `answer_spans`."""


class RowReader:
    """Formats and tokenises rows of one source. Raises DataError and HookError, with the row."""

    def __init__(self, source: str, *, data: DataConfig, hooks: Hooks, tokenizer: Any) -> None:
        self._source = source
        self._data, self._hooks, self._tokenizer = data, hooks, tokenizer

    def format(self, numbered: NumberedRow) -> Formatted:
        """Return the row in its format, as a worker does before the chat template."""
        return self._with_number(numbered, lambda number: self._format(numbered, number))

    def tokenise(self, row: Formatted) -> tuple[list[Example], list[Example], bool]:
        """Return the row as tokens, the sequences that it becomes, and whether it is cut.

        Of a chat there may be several: the first are parts of it, each with an answer of its own.
        """
        wholes = self._with_number(
            row.source_row,
            lambda number: tokenise_row(row.row, number, self._tokenizer, self._data),
        )
        pieces, is_cut = divided(wholes, row.row, self._data)
        return wholes, pieces, is_cut

    def measure(self, row: Formatted) -> RowSizes:
        """Tokenise a row and keep its sizes."""
        wholes, pieces, is_cut = self.tokenise(row)
        used = [piece for piece in pieces if num_counted(piece)]
        return RowSizes(
            row.source_row.number,
            row.format,
            max(len(whole.input_ids) for whole in each_part(wholes)),
            sum(len(piece.input_ids) for piece in pieces),
            sum(map(num_learnt, pieces)),
            tuple(len(piece.input_ids) for piece in used),
            is_cut,
            len(wholes) > 1 and "parts" not in row.row,
        )

    def _format(self, numbered: NumberedRow, number: int | str) -> Formatted:
        prepared = prepare_row(numbered.row, number, self._data, self._hooks)
        shaped = shape_row(prepared, number, self._data)
        name = recognised(prepared, self._data.format) or self._data.format
        fields = Fields()
        fields.add(prepared, self._data.format)
        notes = tuple(sayable(fields.uses, self._tokenizer))
        return Formatted(numbered, name, shaped, notes, fields.unused)

    def _with_number(self, numbered: NumberedRow, work: Callable[[int | str], T]) -> T:
        """Do it; after an error once more, so that the message has the number of the row."""
        try:
            return work(numbered.number or 0)
        except (DataError, HookError) as error:
            if numbered.number is None and numbered.find_number is not None:
                return self._retry_with_number(work, numbered.find_number(), error)
            raise self._named(error) from error

    def _retry_with_number(
        self, work: Callable[[int | str], T], number: int | str, error: Exception
    ) -> T:
        try:
            work(number)
        except (DataError, HookError) as again:
            # A label of several files names the file already.
            has_file = isinstance(number, str) and not number.startswith("at ")
            raise (again if has_file else self._named(again)) from error
        raise error

    def _named(self, error: DataError | HookError) -> DataError | HookError:
        text = error.message
        if text.startswith(self._source):
            return error
        return type(error)(f"{self._source}: {text}", remedy=error.remedy)


def measured(
    reader: RowReader,
    rows: Sequence[Formatted],
    *,
    count: int,
    seed: int,
    is_sample: bool,
    broken: list[str] | None = None,
) -> list[RowSizes]:
    """Tokenise at most `count` rows from all over `rows`; fewer where they are long.

    They are taken in an order that `seed` chooses, so that those before an end are from all over
    as well. Returns them in the order of the source.

    With a list `broken`, what is wrong with rows that template or tokenizer refuse is added to it.
    """
    order = spread(len(rows), count, seed)
    most = count * (_OF_SAMPLE if is_sample else _OF_WHOLE)
    random.Random(seed).shuffle(order)
    measurements: dict[int, RowSizes] = {}
    characters = 0
    for index in order:
        try:
            measurements[index] = reader.measure(rows[index])
        except DataError as error:
            if broken is None:
                raise
            broken.append(error.message)
        characters += rows[index].characters
        if characters > most:
            break
    return [measurements[index] for index in sorted(measurements)]


def spread(size: int, count: int, seed: int) -> list[int]:
    """Return at most `count` indices below `size`, one of each of as many equal pieces."""
    if size <= count:
        return list(range(size))
    if not count:
        return []
    chance = random.Random(seed)
    edges = [piece * size // count for piece in range(count + 1)]
    return [low + int(chance.random() * (high - low)) for low, high in itertools.pairwise(edges)]


def fingerprint(row: Row) -> bytes:
    """Return 16 bytes that are equal for rows that differ only in case, spaces or Unicode form."""
    digest = hashlib.blake2b(digest_size=16)
    for part in _parts(row):
        digest.update(" ".join(unicodedata.normalize("NFKC", part).casefold().split()).encode())
        digest.update(b"\0")
    return digest.digest()


def _parts(row: Row) -> Iterator[str]:
    for part in row.get("parts", ()):
        yield from _parts(part)
    if "text" in row:
        yield row["text"]
        return
    for message in row.get("messages", ()):
        yield message["role"]
        yield message["content"]
        if calls := message.get("tool_calls"):
            yield json.dumps(calls, sort_keys=True, default=str)
    if tools := row.get("tools"):
        yield json.dumps(tools, sort_keys=True, default=str)


# --- Tokens of a row as text ---


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
    num_loss = sum(map(num_learnt, sequences))
    wholes, sequences = each_part(wholes), each_part(sequences)
    whole = Example(
        [token for one in wholes for token in one.input_ids],
        [label for one in wholes for label in one.labels],
    )
    layout = _Layout.of(wholes, sequences)
    if one.names:  # A text that is read as a whole is learnt from its first token on.
        layout = replace(layout, starts=frozenset())
    size = len(whole.input_ids)
    end = size if most is None else min(size, most)
    pieces, names = _pieces(whole, layout, end, tokenizer), one.names
    if names:  # A piece without tokens before each part says what it is.
        pieces = list(_with_names(pieces, [len(each.input_ids) for each in wholes], names))
    return ShownRow(
        number=one.source_row.number,
        format=one.format,
        num_tokens=size,
        num_loss=num_loss,
        num_hidden=size - end,
        num_sequences=1 if names else len(sequences),
        pieces=pieces,
    )


def _with_names(
    pieces: Sequence[Piece], sizes: Sequence[int], names: Sequence[str]
) -> Iterator[Piece]:
    starts = dict(zip([0, *accumulate(sizes)], names, strict=False))
    place = 0
    for piece in pieces:
        if name := starts.pop(place, ""):
            text = f"\n[{name}] " if place else f"[{name}] "
            yield Piece(text=text, ids=[], kind="context", special=True)
        yield piece
        place += len(piece.ids)


@dataclass(frozen=True)
class _Layout:
    """The places of the sequences in the tokens of a row."""

    starts: frozenset[int]
    cut: frozenset[int]
    """Tokens that are in none."""

    @classmethod
    def of(cls, wholes: Sequence[Example], sequences: Sequence[Example]) -> _Layout:
        sizes = [len(example.input_ids) for example in wholes]
        trained = [len(example.input_ids) for example in sequences]
        if len(wholes) == 1:  # One after the other, and behind them what is cut.
            ends = list(accumulate(trained))
            return cls(frozenset({0, *ends[:-1]}), frozenset(range(ends[-1], sizes[0])))
        starts = [0, *accumulate(sizes)][:-1]
        spans = zip(starts, sizes, trained, strict=True)
        cut = [
            token for offset, size, count in spans for token in range(offset + count, offset + size)
        ]
        return cls(frozenset(starts), frozenset(cut))


def _pieces(example: Example, layout: _Layout, end: int, tokenizer: Any) -> list[Piece]:
    special = _special_ids(tokenizer)
    pieces: list[Piece] = []
    before: list[int] = []
    waiting: list[int] = []
    for index in range(end):
        token = example.input_ids[index]
        kind, is_special = _kind(example, index, layout), token in special
        waiting.append(token)
        text = (
            _token_text(before, waiting, tokenizer) if not is_special else _name(token, tokenizer)
        )
        following = index + 1 < end and example.input_ids[index + 1] not in special
        if (
            text.endswith(_UNFINISHED)
            and following
            and len(waiting) < _LONGEST_CHARACTER
            and _kind(example, index + 1, layout) == kind
            and not is_special
        ):
            continue  # a character of several tokens
        pieces.append(Piece(text=text, ids=waiting, kind=kind, special=is_special))
        before, waiting = [] if is_special else (before + waiting)[-_CONTEXT:], []
    return pieces


def _kind(example: Example, index: int, layout: _Layout) -> Kind:
    if index in layout.cut:
        return "cut"
    # The first token of a sequence has none before it that would predict it.
    counts = index not in layout.starts and example.labels[index] != IGNORED
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


# --- Request for rows of a source, and the sample that was read ---


Columns = Callable[[Sequence[str]], list[str] | None]


@dataclass(frozen=True)
class NumberedRow:
    row: Row
    number: int | None
    """From 1; None where it is not known."""
    find_number: Callable[[], int | str] | None = None
    """Finds it out, or its file too, which may take seconds."""


@dataclass(frozen=True)
class Sample:
    """Rows of a source in their order."""

    rows: list[NumberedRow]
    total: int | None
    """Rows that the run uses; None if that is not known."""
    is_estimate: bool = False
    where: str = ""
    """Description of these rows; empty for all of them."""


def all_columns(names: Sequence[str]) -> list[str] | None:
    del names
    return None


@dataclass(frozen=True)
class RowRequest:
    """The rows of a source that a run uses."""

    source: Source
    limit: int | None
    is_streamed: bool = False
    """True if the run streams them: they may be several files."""
    broken: list[str] | None = None
    """Problems of rows that cannot be read, if the run leaves them out."""
    columns: Columns = all_columns
    """Returns which of a Parquet file's columns make a row; None: all of them."""
    nulls: bool = False
    """Empty values of a CSV are missing ones: no hook reads them."""
    unread: set[str] = field(default_factory=set)
    """Columns that were not read, for no row is made of them."""
