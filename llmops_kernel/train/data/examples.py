"""Turn rows into token sequences: format, chat template, loss mask, truncation, packing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Any

from llmops_kernel.config.models.sections import DataConfig
from llmops_kernel.config.objective_rows import aligned
from llmops_kernel.config.row_formats import Fault, Use, renamed, shaped
from llmops_kernel.errors import DataError
from llmops_kernel.models.answer_ends import answer_ends, until_end
from llmops_kernel.models.answer_spans import Template, laid_out, rendered, tokens
from llmops_kernel.train.data.skipped import Fields
from llmops_kernel.train.data.sources import Row
from llmops_kernel.train.hooks import Hooks, call

IGNORED = -100
"""Label of a token that the loss does not count (PyTorch's ignore_index)."""


@dataclass(frozen=True)
class Example:
    """A tokenised row."""

    input_ids: list[int]
    labels: list[int]
    """The id where the loss counts, IGNORED elsewhere; same length as `input_ids`."""


class Blank(Example):
    """Stands where there is no row: nothing in it counts, neither for the loss nor as a token."""


@dataclass(frozen=True)
class Group(Example):
    """The sequences of one row whose loss an objective computes together, laid end to end."""

    lengths: tuple[int, ...]
    target: Any = None
    """The row's label, score or judgement; None where it has none."""
    number: int | str = 0
    is_blank: bool = False

    @classmethod
    def of(cls, parts: Sequence[Example], target: Any, number: int | str) -> Group:
        ids = [token for part in parts for token in part.input_ids]
        labels = [label for part in parts for label in part.labels]
        return cls(ids, labels, tuple(len(part.input_ids) for part in parts), target, number)

    @property
    def parts(self) -> list[Example]:
        kind = Blank if self.is_blank else Example
        ends = list(accumulate(self.lengths))
        ids, labels = parts_of(self.input_ids, ends), parts_of(self.labels, ends)
        return [kind(a, b) for a, b in zip(ids, labels, strict=True)]


def each_part(examples: Iterable[Example]) -> list[Example]:
    """Return the sequences of examples: those of a group apart."""
    return [
        part
        for example in examples
        for part in (example.parts if isinstance(example, Group) else [example])
    ]


@dataclass(frozen=True)
class Prompt:
    """A held-out row for generation."""

    input_ids: list[int]
    prompt: str
    reference: str
    row: Row = field(repr=False)
    number: int = 0
    """Number of the row in its source; rows without a reference are left out before it."""


@dataclass(frozen=True)
class Tokenised:
    examples: list[Example]
    num_cut: int
    """Rows longer than max_length, cut."""
    num_empty: int
    """Rows left out because nothing in them counts for the loss."""
    broken: tuple[str, ...] = ()
    """Problems of the rows that were skipped."""
    num_rows: int = 0
    """Rows that were read."""
    num_split: int = 0
    """Texts longer than max_length, in several of the examples."""
    num_apart: int = 0
    """Chats with answers that have an example of their own, see `answer_spans`."""
    num_chats: int = 0
    """Rows that are chats."""
    is_kept: bool = False
    """Found in the token cache, where an earlier run had put them."""
    uses: Mapping[Use, int] = field(default_factory=dict)
    """Notes on fields -> rows that have the field."""
    unused: tuple[str, ...] = ()
    """Columns that are not used."""


def tokenise(rows: Iterable[Row], *, tokenizer: Any, data: DataConfig, hooks: Hooks) -> Tokenised:
    """Tokenise each row. Raises `DataError` and `HookError`, with the row's number.

    With `data.on_error: skip` rows that raise `DataError` are left out.
    """
    fields = Fields()
    each = formatted(rows, data=data, hooks=hooks, fields=fields)
    done = tokenise_formatted(each, tokenizer=tokenizer, data=data)
    return replace(done, uses=fields.uses, unused=fields.unused)


def formatted(
    rows: Iterable[Row], *, data: DataConfig, hooks: Hooks, fields: Fields
) -> Iterator[Row | DataError]:
    """Yield each row in its format, or what is wrong with it where such rows are left out.

    Notes on their fields are counted in `fields`.
    """
    for number, row in enumerate(rows, start=1):
        result: Row | DataError
        try:
            result = format_row(row, number, data, hooks, fields)
        except DataError as error:
            if data.on_error != "skip":
                raise
            result = error
        yield result


def tokenise_formatted(
    rows: Iterable[Row | DataError], *, tokenizer: Any, data: DataConfig
) -> Tokenised:
    """Tokenise what `formatted` yields. Raises `DataError`, with the row's number."""
    examples: list[Example] = []
    broken: list[str] = []
    num_cut = num_split = num_empty = num_apart = num_chats = 0
    for number, row in enumerate(rows, start=1):
        if isinstance(row, DataError):
            broken.append(row.message)
            continue
        try:
            wholes = tokenise_row(row, number, tokenizer, data)
        except DataError as error:
            if data.on_error != "skip":
                raise
            broken.append(error.message)
            continue
        pieces, is_cut = divided(wholes, row, data)
        num_cut += is_cut
        num_split += len(wholes) < len(pieces)
        num_apart += len(wholes) > 1 and "parts" not in row
        num_chats += any("messages" in part for part in row.get("parts", (row,)))
        with_loss = [piece for piece in pieces if num_counted(piece)]
        num_empty += not with_loss
        examples += with_loss
    if not examples:
        raise DataError(
            f"Nothing is left to train on: in {num_empty} rows no token counts for the loss"
            + (f", and {len(broken)} rows are broken ({broken[0]})." if broken else "."),
            remedy="raise data.max_length, or check that answers are not empty",
        )
    return Tokenised(
        examples,
        num_cut,
        num_empty,
        tuple(broken),
        num_split=num_split,
        num_apart=num_apart,
        num_chats=num_chats,
    )


def divided(wholes: list[Example], row: Row, data: DataConfig) -> tuple[list[Example], bool]:
    """Return what a formatted row is trained on, and whether something of it is lost.

    `wholes`: the row as tokens. A long text becomes several examples, see `data.long_texts`.
    """
    text = wholes[0]
    if is_divided(row, len(text.input_ids), data):
        ends = piece_ends(len(text.input_ids), data.max_length)
        ids, labels = parts_of(text.input_ids, ends), parts_of(text.labels, ends)
        return [Example(a, b) for a, b in zip(ids, labels, strict=True)], False
    examples = [cut(example, data.max_length) for example in wholes]
    return examples, any(a is not b for a, b in zip(examples, wholes, strict=True))


def cut(example: Example, max_length: int) -> Example:
    """Return the example without what is beyond `max_length`; itself where nothing is."""
    if isinstance(example, Group):
        if max(example.lengths) <= max_length:
            return example
        parts = [cut(part, max_length) for part in example.parts]
        return Group.of(parts, example.target, example.number)
    if len(example.input_ids) <= max_length:
        return example
    return Example(example.input_ids[:max_length], example.labels[:max_length])


def num_counted(example: Example) -> int:
    """Return how many tokens the loss counts: the first has none before it that predicts it.

    Of a group those of the sequence that has fewest.
    """
    if isinstance(example, Group):
        return min(len(part.labels) - part.labels.count(IGNORED) for part in example.parts)
    return max(0, len(example.labels) - 1) - example.labels[1:].count(IGNORED)


def num_learnt(example: Example) -> int:
    """Return how many tokens the loss is about; of a group also the first of each sequence."""
    is_group = isinstance(example, Group)
    return len(example.labels) - example.labels.count(IGNORED) if is_group else num_counted(example)


def format_row(
    row: Row, number: int | str, data: DataConfig, hooks: Hooks, fields: Fields | None = None
) -> Row:
    """Return `{"messages": [...]}` or `{"text": ...}`, after `data.columns` and the hook."""
    prepared = prepare_row(row, number, data, hooks)
    shape = shape_row(prepared, number, data)
    if fields is not None:
        fields.add(prepared, data.format)
    return shape


def prepare_row(row: Row, number: int | str, data: DataConfig, hooks: Hooks) -> Row:
    """Return the row after `data.columns` and the hook: an object of any of the formats."""
    if data.columns:
        row = _sound(renamed(row, data.columns), number, data)
    if hooks.format_example is not None:
        formatted = call(hooks.format_example, row, where=f"row {number}")
        row = {"text": formatted} if isinstance(formatted, str) else formatted
        if not isinstance(row, dict):
            raise DataError(
                f"format_example returned a {type(formatted).__name__} for row {number}.",
                remedy='return a string, {"text": ...} or {"messages": [...]}',
            )
    return row


def shape_row(row: Row, number: int | str, data: DataConfig) -> Row:
    """Return a prepared row as `{"messages": [...]}` or `{"text": ...}`."""
    return _sound(shaped(row, data.format), number, data)


def _sound(row: Row | Fault, number: int | str, data: DataConfig) -> Row:
    if isinstance(row, Fault):
        raise DataError(
            f"Row {number}, read with format={data.format}: {row.message}.", remedy=row.hint
        )
    return row


def tokenise_row(row: Row, number: int | str, tokenizer: Any, data: DataConfig) -> list[Example]:
    """Tokenise a row of `format_row`, whole. Raises `DataError` with the row's number.

    A chat becomes several examples where the template writes earlier answers in another way.
    Whatever the row makes the chat template or the tokenizer raise is the row's fault.
    """
    with _refused(f"Row {number}"):
        if "parts" in row:
            wholes = _tokenise_parts(row, number, tokenizer, data)
        elif "text" in row:
            ids = text_tokens(tokenizer, row["text"])
            if tokenizer.eos_token_id is not None and ids[-1:] != [tokenizer.eos_token_id]:
                ids = [*ids, tokenizer.eos_token_id]
            wholes = [Example(ids, list(ids))]
        else:
            wholes = _tokenise_chat(row, number, tokenizer, data)
    if row.get("weight") != 0:
        return wholes
    return [replace(example, labels=[IGNORED] * len(example.input_ids)) for example in wholes]


def _tokenise_parts(row: Row, number: int | str, tokenizer: Any, data: DataConfig) -> list[Example]:
    """Return the sequences of a row as one group; of a pair of answers to be rated as two."""
    parts = []
    for place, part in enumerate(row["parts"]):
        if "text" in part:
            ids = text_tokens(tokenizer, data.prefixes[place > 0] + part["text"])
            example = Example(ids, ids)
        else:
            chat = {**part, "tools": row.get("tools")}
            example = _tokenise_chat(chat, number, tokenizer, data)[-1]
            if not num_counted(example):  # A chat that is read and not answered.
                example = Example(example.input_ids, example.input_ids)
        parts.append(example)
    if "teacher" in row:
        row = {**row, **_sound(aligned(row["teacher"], parts[0], data.max_length), number, data)}
    if str(data.format) == "rated" and len(parts) > 1:
        rated = zip(parts, (1.0, 0.0), strict=True)
        return [Group.of([part], target, number) for part, target in rated]
    return [Group.of(parts, row.get("target"), number)]


def render_row(row: Row, number: int | str, tokenizer: Any) -> str:
    """Return a chat as text. Raises `DataError` with the row's number, as `tokenise_row`."""
    with _refused(f"Row {number}"):
        return rendered(tokenizer, row["messages"], row.get("tools"))


@contextmanager
def _refused(
    label: str,
    *,
    remedy: str = "correct or delete the row, or change it in format_example(row); with"
    " data.on_error=skip such rows are left out",
) -> Iterator[None]:
    """Raise as DataError what a chat template or a tokenizer raises for `Row 12`."""
    try:
        yield
    except DataError:
        raise
    except Exception as error:  # A template is a program of the model's author.
        is_jinja = type(error).__module__.startswith("jinja2")
        by = "chat template" if is_jinja else "chat template or tokenizer"
        message = f"{label} is refused by the model's {by}: {error or type(error).__name__}."
        raise DataError(message, remedy=remedy) from error


def text_tokens(tokenizer: Any, text: str) -> list[int]:
    """Return a text's tokens, with those that the tokenizer puts around one, each only once.

    A text that a chat template has written begins with the first of them already.
    """
    ids: list[int] = tokenizer(text, add_special_tokens=True)["input_ids"]
    begin = tokenizer.bos_token_id
    return ids[1:] if begin is not None and ids[:2] == [begin, begin] else ids


def _tokenise_chat(row: Row, number: int | str, tokenizer: Any, data: DataConfig) -> list[Example]:
    """Find the answers; with `loss_on: all` what is only read: messages with a weight of 0."""
    messages, is_all = row["messages"], data.loss_on == "all"
    is_read = [token.get("weight") == 0 for token in messages]
    is_answer = [token["role"] == "assistant" for token in messages]
    learnt = [a and not r for a, r in zip(is_answer, is_read, strict=True)]
    template = Template(tokenizer, row.get("tools"))
    examples = []
    for chat in laid_out(messages, is_read if is_all else learnt, number, template, as_one=is_all):
        ids, counts = tokens(chat, tokenizer, outside=is_all)
        labels = [
            token if has_loss else IGNORED for token, has_loss in zip(ids, counts, strict=True)
        ]
        examples.append(Example(ids, labels))
    return examples


def prompts(rows: Iterable[Row], *, tokenizer: Any, data: DataConfig, hooks: Hooks) -> list[Prompt]:
    """Return the part of each chat before its last answer, and that answer. Raises `DataError`."""
    result = []
    for number, row in enumerate(rows, start=1):
        formatted = format_row(row, number, data, hooks)
        messages = formatted.get("messages")
        if formatted.get("weight") == 0 or (messages and messages[-1].get("weight") == 0):
            continue  # Its answer is no reference.
        if not messages or messages[-1]["role"] != "assistant":
            raise DataError(
                f"Held-out row {number} has no answer to compare a generated one with.",
                remedy="end each chat with an assistant message, or set evaluation.generate: false",
            )
        with _refused(f"Row {number}"):
            text = rendered(tokenizer, messages[:-1], formatted.get("tools"), prompt=True)
            ids = tokenizer(text, add_special_tokens=False)["input_ids"]
            reference = _reference(tokenizer, messages, formatted.get("tools"), prompt=text)
        result.append(Prompt(ids, text, reference, row, number))
    return result


def _reference(tokenizer: Any, messages: Sequence[Row], tools: Any, *, prompt: str) -> str:
    """Return the last answer; one that calls tools as the template writes it, which is generated.

    Its content is mostly empty, and no answer is to be compared with that.
    """
    content: str = messages[-1]["content"]
    chat = rendered(tokenizer, messages, tools) if messages[-1].get("tool_calls") else ""
    if not chat.startswith(prompt):
        return content
    ids = tokenizer(chat[len(prompt) :], add_special_tokens=False)["input_ids"]
    answer_ids = until_end(ids, answer_ends(tokenizer))
    return str(tokenizer.decode(answer_ids, skip_special_tokens=True)).strip()


def own_prompts(texts: Sequence[str], *, tokenizer: Any, data: DataConfig) -> list[Prompt]:
    """Return the config's prompts: each as a user's message, or as the beginning of a plain text
    where the rows are such texts or the tokenizer has no chat template.
    """
    result = []
    all_text = all(source.format == "text" for source in data.sources)
    for text in texts:
        with _refused(f"evaluation.prompts: {text!r:.60}", remedy="correct it, or leave it out"):
            if all_text or tokenizer.chat_template is None:
                prompt, ids = text, text_tokens(tokenizer, text)
                if len(ids) > 1 and ids[-1] == tokenizer.eos_token_id:
                    ids = ids[:-1]  # After it a model begins another text.
            else:
                prompt = rendered(tokenizer, [{"role": "user", "content": text}], prompt=True)
                ids = tokenizer(prompt, add_special_tokens=False)["input_ids"]
        result.append(Prompt(ids, prompt, "", {}))
    return result


@dataclass(frozen=True)
class Packed:
    """Several examples laid end to end in one sequence."""

    input_ids: list[int]
    labels: list[int]
    position_ids: list[int]
    """Starts at 0 again with each example: that keeps attention inside it."""
    lengths: list[int]


def pack(examples: Sequence[Example], *, max_length: int) -> list[Packed]:
    """Pack examples into sequences of at most `max_length` as `fit` says."""
    sizes = [len(example.input_ids) for example in examples]
    bins = fit(sizes, max_length=max_length)
    return [lay_out([examples[index] for index in members]) for members in bins]


def fit(sizes: Sequence[int], *, max_length: int) -> list[list[int]]:
    """Return indices by first-fit over the examples' sizes in their order; each stays whole.

    The order inside a pack does not depend on anything but the input, so every rank
    packs alike.
    """
    bins: list[list[int]] = []
    free: list[int] = []
    first_open = 0
    for example, size in enumerate(sizes):
        index = next((i for i in range(first_open, len(bins)) if free[i] >= size), None)
        if index is None:
            bins.append([example])
            free.append(max_length - size)
        else:
            bins[index].append(example)
            free[index] -= size
        # Bins too full for any real row are skipped from then on: keeps packing near linear.
        while first_open < len(bins) and (free[first_open] < 2 or len(bins) - first_open > 64):
            first_open += 1
    return bins


def lay_out(members: Sequence[Example]) -> Packed:
    """Return the examples end to end, each with positions of its own."""
    packed = Packed([], [], [], [])
    for example in members:
        size = len(example.input_ids)
        packed.input_ids.extend(example.input_ids)
        # No row may be asked to predict its first token from the row before it.
        packed.labels.extend([IGNORED, *example.labels[1:]])
        packed.position_ids.extend(range(size))
        packed.lengths.append(size)
    return packed


def blank_like(row: Example | Packed) -> Example | Packed:
    """Return a row like this one in which nothing counts, neither for the loss nor as a token."""
    ids, labels = row.input_ids[:1] * 2, [IGNORED] * 2
    if isinstance(row, Group):
        group = Group.of([Blank(ids, labels)] * len(row.lengths), row.target, row.number)
        return replace(group, is_blank=True)
    return Packed(ids, labels, [0, 1], []) if isinstance(row, Packed) else Blank(ids, labels)


# --- Pieces of texts that are longer than `max_length` ---


def piece_ends(size: int, max_length: int) -> list[int]:
    """Return where the pieces of a text of `size` tokens end.

    Consecutive pieces of `max_length` tokens, which do not overlap. A single token at the end
    would have none before it that predicts it: the piece before is then one token shorter.
    """
    ends = [*range(max_length, size, max_length), size]
    if len(ends) > 1 and ends[-1] - ends[-2] == 1:
        ends[-2] -= 1
    return ends


def is_divided(row: Mapping[str, Any], size: int, data: DataConfig) -> bool:
    """Return whether a formatted row of so many tokens becomes several sequences."""
    return "text" in row and data.long_texts == "split" and size > data.max_length


def may_divide(data: DataConfig, *, has_hook: bool) -> bool:
    """Return whether some row may become several sequences."""
    return data.long_texts == "split" and (data.format in ("auto", "text") or has_hook)


def parts_of(tokens: Sequence[int], ends: Sequence[int]) -> list[list[int]]:
    """Return the tokens of each piece."""
    return [list(tokens[begin:end]) for begin, end in zip([0, *ends], ends, strict=False)]
