"""The spans of the answers in a chat as its template writes it: what a model is trained to write.

An answer begins where the template's prompt for it ends, and ends with what ends the turn. Some
templates write an earlier answer otherwise than the last one: without its reasoning, or with
another end. As a model is asked for each answer as the last one, such an answer is trained in a
text of its own, which ends with it.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from llmops_kernel.errors import DataError
from llmops_kernel.metrics.events import WarningEvent
from llmops_kernel.models.answer_ends import TurnEnd, own_tokens, turn_end

Message = dict[str, Any]
_PROBE = "AnswerThatIsLookedFor"
_REASON = "ReasonOfAnswer"
_THOUGHT = "</think>"
_PART = 16
"""Characters of an answer's beginning and end, one of which is in what a template makes of it."""
_MARKED = re.compile(r"\{%-?\s*generation\b")
"""Templates that mark what the assistant writes, as Transformers reads it."""


def rendered(
    tokenizer: Any, messages: Sequence[Message], tools: Any = None, *, prompt: bool = False
) -> str:
    """Return what the template makes of a chat; with `prompt` up to where an answer begins."""
    if tokenizer.chat_template is None:
        raise DataError(
            "The rows are chats, but the model's tokenizer has no chat template.",
            remedy="use the model's instruct variant, or format: text",
        )
    text: str = tokenizer.apply_chat_template(
        plain(messages), tools=tools, tokenize=False, add_generation_prompt=prompt
    )
    return text


def plain(messages: Sequence[Message]) -> list[Message]:
    """Return the messages as a template reads them: it knows no weights."""
    return [{key: message[key] for key in message if key != "weight"} for message in messages]


@dataclass(frozen=True)
class Template:
    """The chat template of a tokenizer."""

    tokenizer: Any
    tools: Any = None

    def text(self, messages: Sequence[Message], *, prompt: bool = False) -> str:
        """Return a chat as text; with `prompt` up to where an answer begins."""
        return rendered(self.tokenizer, messages, self.tools, prompt=prompt)

    def marks(self, messages: Sequence[Message]) -> list[int] | None:
        """Return for each token of the chat whether it is marked as the assistant's.

        None where the template marks nothing.
        """
        if not _MARKED.search(str(self.tokenizer.chat_template)):
            return None
        encoded = self.tokenizer.apply_chat_template(
            plain(messages),
            tools=self.tools,
            tokenize=True,
            return_dict=True,
            return_assistant_tokens_mask=True,
        )
        return list(encoded["assistant_masks"])

    @property
    def turn_end(self) -> TurnEnd:
        return turn_end(self.tokenizer)


@dataclass(frozen=True)
class Span:
    """The characters of one message."""

    begin: int
    end: int
    next_ends: bool = False
    """True if the token behind them, with which the next message begins, ends the answer."""


@dataclass
class LaidOut:
    """A chat as text, and the spans of messages in it."""

    text: str
    spans: list[Span] = field(default_factory=list)
    marks: list[int] | None = None
    """For each token whether the template marks it as written by the assistant."""
    end: int | None = None
    """The token that ends the last answer, where the template writes none."""


def laid_out(
    messages: Sequence[Message],
    is_learnt: Sequence[bool],
    number: int | str,
    template: Template,
    *,
    as_one: bool = False,
) -> list[LaidOut]:
    """Return the chat with the spans of the wanted messages; before it a text of its own for each
    answer that the template writes otherwise there, unless the chat is to stay `as_one`.

    Raises DataError, with the row's number, where a message cannot be found.
    """
    try:
        layouts = _by_prompts(messages, is_learnt, number, template)
        if as_one and len(layouts) > 1:
            raise _refusal(number, "it writes a message otherwise when others follow")
        return [*layouts[:-1], replace(layouts[-1], marks=None)] if as_one else layouts
    except DataError:
        is_answer = [message["role"] == "assistant" for message in messages]
        marks = template.marks(messages)
        if not any(marks or ()) or list(is_learnt) != is_answer:
            raise
    text = template.text(messages)
    return [LaidOut(text, [Span(0, len(text))], marks, _end(messages, template))]


def _by_prompts(
    messages: Sequence[Message], is_learnt: Sequence[bool], number: int | str, template: Template
) -> list[LaidOut]:
    text = template.text(messages)
    conversation, apart = LaidOut(text, end=_end(messages, template)), []
    for index, message in enumerate(messages):
        if not is_learnt[index]:
            continue
        chat, is_last = messages[: index + 1], index + 1 == len(messages)
        alone = text if is_last else template.text(chat)
        begin = _begin(chat, alone, number, template)
        stop = len(alone) if is_last else _shared_end(text, alone, begin, template.turn_end)
        if stop is not None:
            conversation.spans.append(Span(begin, stop, _next_ends(messages, index, template)))
        elif message["role"] == "assistant":
            apart_layout = LaidOut(alone, [Span(begin, len(alone))], end=_end(chat, template))
            apart.append((apart_layout, chat))
        else:
            raise _refusal(number, "it writes a message otherwise when others follow")
    layouts = [*apart, (conversation, messages)] if conversation.spans or not apart else apart
    for layout, chat in layouts:
        layout.marks = template.marks(chat) if layout.spans else None
    return [layout for layout, _ in layouts]


def _end(messages: Sequence[Message], template: Template) -> int | None:
    """Return what is put behind the last message: the end of an answer that the template lacks."""
    end, last = template.turn_end, messages[-1]
    if last["role"] != "assistant" or last.get("weight") == 0 or not end.is_known:
        return None
    if end.is_in_next_turn:
        return end.token
    eos: int | None = template.tokenizer.eos_token_id
    return None if end.text else eos


def _next_ends(messages: Sequence[Message], index: int, template: Template) -> bool:
    """Return whether an answer ends with the token that the next message begins with."""
    if not template.turn_end.is_in_next_turn or index + 1 == len(messages):
        return False
    return [message["role"] == "assistant" for message in messages[index : index + 2]] == [
        True,
        False,
    ]


def rewrites_answers(tokenizer: Any) -> bool:
    """Return whether the chat template writes an earlier answer otherwise than the last one."""
    if not getattr(tokenizer, "chat_template", None):
        return False
    thought = "<think>\nReason\n</think>\n\n"
    chats = [
        [
            {"role": "user", "content": "FirstQuestion"},
            {"role": "assistant", "content": f"{before}FirstAnswer"},
            {"role": "user", "content": "SecondQuestion"},
            {"role": "assistant", "content": f"{before}SecondAnswer"},
        ]
        for before in ("", thought)
    ]
    template = Template(tokenizer)
    try:
        return any(len(laid_out(chat, [False, True] * 2, 0, template)) > 1 for chat in chats)
    except Exception:  # Whoever tokenises rows says what is wrong.
        return False


def template_warnings(tokenizer: Any) -> list[WarningEvent]:
    """Return what to know of the chat template before answers are trained with it."""
    if not getattr(tokenizer, "chat_template", None):
        return []
    return [*_end_warnings(tokenizer), *_prompt_warnings(Template(tokenizer))]


def _end_warnings(tokenizer: Any) -> Iterator[WarningEvent]:
    end = turn_end(tokenizer)
    if not end.is_known or end.token is not None:
        return
    if end.text:
        yield WarningEvent(
            message=f"The chat template ends an answer with {end.text!r}, which is not one token of"
            " the tokenizer. It is trained, and ends answers in evaluations and scorings; other"
            " servers stop there only if they are told to.",
            remedy=f"add {end.text!r} to the tokenizer as a special token, or use the template of"
            " the model's instruct variant",
        )
    elif tokenizer.eos_token is None:
        yield WarningEvent(
            message="The chat template writes nothing that ends an answer, and the tokenizer has no"
            " end token: the model will not learn where an answer ends.",
            remedy="set the tokenizer's eos_token, or a chat template that ends each turn with it",
        )
    else:
        yield WarningEvent(
            message="The chat template writes nothing that ends an answer. Behind the last answer"
            f" of each chat the tokenizer's end token {tokenizer.eos_token!r} is added and trained;"
            " earlier answers have no end.",
            remedy="use a chat template that ends each turn with a token of its own",
        )


def _prompt_warnings(template: Template) -> Iterator[WarningEvent]:
    """Say where an answer is not trained behind the prompt that asks for it, or not all of it."""
    question = {"role": "user", "content": "Question"}
    thought = f"<think>\n{_REASON}\n{_THOUGHT}\n\n{_PROBE}"
    try:
        prompt = template.text([question], prompt=True)
        text, reasoned = (
            template.text([question, {"role": "assistant", "content": content}])
            for content in (_PROBE, thought)
        )
    except Exception:  # Whoever tokenises rows says what is wrong.
        return
    drops = _PROBE in reasoned and _REASON not in reasoned
    rest = prompt[_before_token(prompt, _num_equal(prompt, text), template.tokenizer) :]
    alternative = "use a chat template that does"
    if drops:
        yield WarningEvent(
            message="The chat template leaves the reasoning of an answer (<think>...</think>) out:"
            " where the rows have some, it is not trained.",
            remedy=f"nothing to do where they have none; else {alternative} not",
        )
    if rest.strip() and _PROBE in text:
        yield WarningEvent(
            message=f"The chat template ends its prompt for an answer with {rest!r}, which it does"
            " not write before an answer without reasoning: such an answer is trained without it,"
            " and the model is then asked with it.",
            remedy=f"{alternative} not"
            if drops
            else "give answers with their reasoning, as"
            f" <think>...</think> before the answer, or {alternative} not",
        )


def tokens(chat: LaidOut, tokenizer: Any, *, outside: bool = False) -> tuple[list[int], list[bool]]:
    """Return the tokens of a chat, and for each whether it is of a span or ends one.

    With `outside` whether it is of none. The end that the template lacks counts in both cases.
    """
    encoded = tokenizer(chat.text, add_special_tokens=False, return_offsets_mapping=True)
    ids, offsets = list(encoded["input_ids"]), encoded["offset_mapping"]
    inside = [False] * len(ids)
    for span in chat.spans:
        begin, end = span.begin, span.end
        for place, (start, stop) in enumerate(offsets):
            if begin <= start < end and stop > start:
                inside[place] = True
    if chat.marks is not None and any(chat.marks) and len(chat.marks) == len(ids):
        inside = _marked(ids, inside, chat.marks, turn_end(tokenizer).token)
    if any(span.next_ends for span in chat.spans):
        special_ids, starts = own_tokens(tokenizer), [start for start, _ in offsets]
        for span in chat.spans:
            place = bisect_left(starts, span.end)
            if span.next_ends and place < len(ids) and ids[place] in special_ids:
                inside[place] = True
    counted = [not is_inside for is_inside in inside] if outside else inside
    if chat.end is not None:
        return [*ids, chat.end], [*counted, True]
    return ids, counted


def _marked(
    ids: Sequence[int], inside: Sequence[bool], marks: Sequence[int], end: int | None
) -> list[bool]:
    """Return which tokens of the spans are marked; what ends an answer is, marked or not."""
    is_marked: list[bool] = []
    for token, is_inside, mark in zip(ids, inside, marks, strict=True):
        ends = token == end and bool(is_marked) and is_marked[-1]
        is_marked.append(is_inside and (bool(mark) or ends))
    return is_marked


def _begin(messages: Sequence[Message], alone: str, number: int | str, template: Template) -> int:
    """Return where the last of the messages begins in `alone`, which is the text of them all."""
    *before, message = messages
    if not before:
        return _begin_of_first(message, alone, number, template)
    prompt = template.text(before, prompt=message["role"] == "assistant")
    content = str(message.get("content") or "")
    answer = content.rpartition(_THOUGHT)[2].strip()
    if alone.startswith(prompt):
        if answer[:_PART] not in alone[len(prompt) :] and answer[-_PART:] not in alone:
            raise _refusal(number, "it writes nothing of the answer")
        return len(prompt)
    # The prompt has what this answer has not, as a beginning of its reasoning.
    probe = template.text([*before, {**message, "content": _PROBE}])
    place = probe.rfind(_PROBE)
    equal = min(_num_equal(prompt, probe), _num_equal(prompt, alone))
    begin = _before_token(probe, equal, template.tokenizer)
    tail = probe[place + len(_PROBE) :]
    body = alone[begin : len(alone) - len(tail)]
    previous = str(before[-1].get("content") or "").strip()
    if place < begin or not alone.endswith(tail):
        raise _refusal(number, "it does not write the prompt before an answer")
    if not body.rstrip().endswith(answer) or (previous and previous in probe[begin:place]):
        raise _refusal(number, "the answer is not where its prompt ends")
    return begin


def _begin_of_first(message: Message, alone: str, number: int | str, template: Template) -> int:
    """Return where a chat's first message begins: templates are not made for one without any."""
    first, second = (template.text([{**message, "content": text}]) for text in ("A", "B"))
    begin = _num_equal(first, second)
    if not alone.startswith(first[:begin]):
        raise _refusal(number, "its beginning depends on the first message")
    return begin


def _shared_end(text: str, alone: str, begin: int, end: TurnEnd) -> int | None:
    """Return where an earlier message ends in the whole text, or None if it is another there.

    `alone`: the text that ends with that message.
    """
    equal = _num_equal(text, alone)
    if equal >= len(alone.rstrip()):
        return equal
    place = alone.rfind(end.text, begin) if end.text and not end.is_in_next_turn else -1
    stop = place + len(end.text)
    if place < begin or stop > equal:
        return None
    spaces = len(alone[stop:equal]) - len(alone[stop:equal].lstrip())
    return stop + spaces


def _before_token(text: str, place: int, tokenizer: Any) -> int:
    """Return a place of the text that is not inside of one of the tokenizer's own tokens."""
    special_ids = own_tokens(tokenizer)
    encoded = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    for token, (start, stop) in zip(encoded["input_ids"], encoded["offset_mapping"], strict=True):
        if token in special_ids and start < place < stop:
            return int(start)
    return place


def _num_equal(first: str, second: str) -> int:
    pairs = enumerate(zip(first, second, strict=False))
    return next((n for n, (a, b) in pairs if a != b), min(len(first), len(second)))


def _refusal(number: int | str, why: str) -> DataError:
    return DataError(
        f"Row {number}: the answer's tokens cannot be identified in what the model's chat template"
        f" makes of the chat: {why}.",
        remedy="set data.loss_on: all, or give the tokenizer a chat template with"
        " {% generation %} around what the assistant writes",
    )
