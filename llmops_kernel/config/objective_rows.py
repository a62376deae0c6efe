"""The shapes of rows that objectives other than imitation learn from, added to `row_formats`.

Each reader returns `{"parts": [...]}`: the texts or chats of a row, in the order in which the
objective compares them, and a `target` where the row has one. Names are those of TRL's and
sentence-transformers' data sets.
"""

from __future__ import annotations

from array import array
from math import exp, fsum, isfinite
from typing import Any, Final, NamedTuple

from llmops_kernel.config.row_formats import (
    OF_CHATS,
    Fault,
    Row,
    add_format,
    chat_of,
    kind,
    messages_fault,
)

_CHAT_FIELDS: Final = tuple(name for name in OF_CHATS if name != "label")
_ANSWER = "write a text, or a list of messages that ends with the assistant's"


def _preference(row: Row) -> Row | Fault:
    """Read two answers to one prompt: the preferred one, and the other.

    Without `prompt` both are whole chats, and the prompt is what they have in common before the
    last answer. A chat that begins with the prompt's messages does not have them twice.
    """
    prompt = _prompt(row)
    if isinstance(prompt, Fault):
        return prompt
    sides: list[Any] = [row["chosen"], row["rejected"]]
    if prompt is None:
        fault = next((f for side in sides if (f := messages_fault(side))), None)
        if fault is not None:
            remedy = "give `prompt` beside two texts, or two lists of messages"
            return Fault(f"without a `prompt`, {fault.message}", remedy)
        pairs = list(zip(*sides, strict=False))
        shared = next((n for n, (a, b) in enumerate(pairs) if a != b), len(pairs))
        prompt = sides[0][: min(shared, *(len(side) - 1 for side in sides))]
        if not prompt:
            return Fault("`chosen` and `rejected` have no common beginning", "give a `prompt`")
    parts = []
    for name, side in zip(("chosen", "rejected"), sides, strict=True):
        part = _answered(row, prompt, side, name)
        if isinstance(part, Fault):
            return part
        parts.append(part)
    if parts[0] == parts[1]:
        return Fault("`chosen` and `rejected` are equal", "a pair teaches by its difference")
    return {"parts": parts}


def _prompt(row: Row) -> list[Row] | Fault | None:
    """Return the messages of `prompt`; None where the row has none."""
    prompt = row.get("prompt")
    if prompt is None:
        return None
    if isinstance(prompt, str):
        return [{"role": "user", "content": prompt}]
    return messages_fault(prompt) or list(prompt)


def _answered(row: Row, prompt: list[Row], answer: Any, name: str) -> Row | Fault:
    """Return the chat of a prompt and an answer to it, of which only the last message is learnt."""
    if isinstance(answer, str):
        turns: list[Any] = [{"role": "assistant", "content": answer}]
    elif not isinstance(answer, list | tuple):
        return Fault(f"`{name}` is {kind(answer)}, not a text or a list of messages", _ANSWER)
    elif fault := messages_fault(answer):
        return Fault(f"`{name}`: {fault.message}", _ANSWER)
    else:
        begins = [*answer[: len(prompt)]] == prompt
        turns = [*(answer[len(prompt) :] if begins else answer)]
    last = turns[-1] if turns else {}
    if last.get("role") != "assistant" or not (
        str(last.get("content") or "").strip() or last.get("tool_calls")
    ):
        return Fault(f"`{name}` has no answer of the assistant", _ANSWER)
    return chat_of(row, [*({**turn, "weight": 0} for turn in [*prompt, *turns[:-1]]), last])


def _rated(row: Row) -> Row | Fault:
    """Read an answer with the judgement whether it is a good one, as KTO learns from."""
    label = str(row["label"]).strip().lower()
    if label not in ("true", "false", "1", "0", "1.0", "0.0"):
        return Fault(f"`label` is {row['label']!r}", "write true for a good answer, else false")
    prompt = _prompt(row)
    if isinstance(prompt, Fault):
        return prompt
    part = _answered(row, prompt or [], row["completion"], "completion")
    if isinstance(part, Fault):
        return part
    return {"parts": [part], "target": float(label in ("true", "1", "1.0"))}


def _labelled(row: Row) -> Row | Fault:
    """Read a text or chat with its label: a name, a number, or a list of them."""
    label = row["label"]
    values = label if isinstance(label, list | tuple) else [label]
    for value in values:
        is_number = isinstance(value, int | float) and isfinite(value)
        if not (is_number or (isinstance(value, str) and value.strip())):
            return Fault(f"`label` is {kind(value)}", "write a name, a number or a list of them")
    target = [*values] if isinstance(label, list | tuple) else label
    if isinstance(row.get("text"), str):
        if not row["text"].strip():
            return Fault("`text` is empty", "write the text, or delete the row")
        return {"parts": [{"text": row["text"]}], "target": target}
    messages = row.get("messages") or _prompt(row)
    if isinstance(messages, Fault):
        return messages
    if messages is None:
        return Fault("has no `text`, `messages` or `prompt`", "name the column in data.columns")
    part = chat_of(row, messages)
    return part if isinstance(part, Fault) else {"parts": [part], "target": target}


def _pairs(row: Row) -> Row | Fault:
    """Read a query, a text that answers it, and texts that do not."""
    negatives = row.get("negatives", row.get("negative"))
    listed = negatives if isinstance(negatives, list | tuple) else [negatives]
    more = [text for text in listed if text is not None]
    return _texts(("query", row["query"]), ("positive", row["positive"]), more)


def _scored(row: Row) -> Row | Fault:
    """Read two texts with their similarity."""
    score = row["score"]
    if isinstance(score, bool) or not isinstance(score, int | float) or not isfinite(score):
        return Fault(f"`score` is {kind(score)}", "write a number, such as a similarity of 0 to 1")
    texts = _texts(("text1", row["text1"]), ("text2", row["text2"]), [])
    return texts if isinstance(texts, Fault) else {**texts, "target": float(score)}


def _texts(first: tuple[str, Any], second: tuple[str, Any], more: list[Any]) -> Row | Fault:
    named = [first, second, *((f"negative {n}", text) for n, text in enumerate(more, start=1))]
    for name, text in named:
        if not isinstance(text, str) or not text.strip():
            what = kind(text) if not isinstance(text, str) else "empty"
            return Fault(f"`{name}` is {what}", "write a text, or delete the row")
    if second[1] in more:
        return Fault("a negative is the positive itself", "delete it from the negatives")
    return {"parts": [{"text": text} for _, text in named]}


class Teacher(NamedTuple):
    """What a teacher gave the tokens of an answer. Bytes: a million tokens are held in memory."""

    tokens: tuple[int, ...]
    """The tokens of the answer, with what ends it."""
    prompt_tokens: int | None
    """Tokens before the answer; None where that is not known."""
    top_k: int
    token_ids: bytes
    """int32, of shape (tokens, top_k)."""
    log_probs: bytes
    """float32, of the same shape."""


_SCORED_ANEW = "score the rows with `task: {type: logprob, top_k: 8}`"
_SUM_TOLERANCE = 1e-2
"""The probabilities of a teacher in bfloat16 add up to 1 with an error of this size."""


def _distilled(row: Row) -> Row | Fault:
    """Read a chat with the most probable tokens of a teacher at each token of its last answer.

    As `llmops score` writes them with `task.top_k`. Without `messages` the chat is `prompt` and
    `reference`.
    """
    if row["target_tokens"] is None or row["top_logprobs"] is None:
        why = f": {row['error']}" if row.get("error") else ""
        return Fault(f"has no answer of the teacher{why}", f"{_SCORED_ANEW}, or leave it out")
    chat = row.get("messages")
    if chat is None:
        prompt = _prompt(row)
        if isinstance(prompt, Fault):
            return prompt
        if not prompt or not row.get("reference"):
            return Fault("has no `messages`, nor `prompt` and `reference`", _SCORED_ANEW)
        chat = [*prompt, {"role": "assistant", "content": row["reference"]}]
    if fault := messages_fault(chat):
        return fault
    part = _answered(row, chat[:-1], chat[-1:], "messages")
    if isinstance(part, Fault):
        return part
    teacher = _teacher(row)
    return teacher if isinstance(teacher, Fault) else {"parts": [part], "teacher": teacher}


def _teacher(row: Row) -> Teacher | Fault:
    top, tokens = row["top_logprobs"], row["target_tokens"]
    try:
        ids, values = top["token_ids"], top["logprobs"]
        sizes = {len(one) for one in (*ids, *values)}
        teacher = Teacher(
            tuple(tokens),
            row.get("prompt_tokens"),
            min(sizes, default=0),
            array("i", [token for one in ids for token in one]).tobytes(),
            array("f", [value for one in values for value in one]).tobytes(),
        )
    except (TypeError, KeyError, ValueError, OverflowError):
        what = kind(top) if not isinstance(top, dict) else "an object of another shape"
        return Fault(
            f"`top_logprobs` is {what}, not lists of `token_ids` and `logprobs`", _SCORED_ANEW
        )
    if len(sizes) != 1 or not teacher.top_k or not len(tokens) == len(ids) == len(values):
        return Fault(
            f"`target_tokens` has {len(tokens)} tokens, and `top_logprobs` has {len(ids)} and"
            f" {len(values)} of {sorted(sizes)}",
            _SCORED_ANEW,
        )
    for place, one in enumerate(values, start=1):
        is_known = all(map(isfinite, one)) and max(one) <= _SUM_TOLERANCE
        if not is_known or fsum(map(exp, one)) > 1 + _SUM_TOLERANCE:
            return Fault(
                f"{list(one)[:3]} at token {place} are not the logarithms of probabilities",
                "write natural logarithms, which of one token add up to a probability of at most 1",
            )
    return teacher


def aligned(teacher: Teacher, example: Any, max_length: int) -> Row | Fault:
    """Return a teacher's row as the target of the same tokens of a student; else what differs.

    `example`: the student's `input_ids` and `labels`, whole; labels are negative before the answer.
    """
    ids, labels = example.input_ids, example.labels
    learnt = [place for place, label in enumerate(labels) if label >= 0]
    begin, end = (learnt[0], learnt[-1] + 1) if learnt else (0, 0)
    own = list(ids[begin:end])
    remedy = (
        "distil from a teacher with the student's tokenizer and chat template, and score the rows"
        " with it"
    )
    if len(ids) > max_length:
        return Fault(
            f"the chat has {len(ids)} tokens, and those beyond data.max_length={max_length} would"
            " be cut, with what the teacher says of them",
            f"set data.max_length={len(ids)} or more",
        )
    if len(own) != len(teacher.tokens):
        return Fault(
            f"the answer is {len(own)} tokens for the student and {len(teacher.tokens)} for the"
            " teacher",
            remedy,
        )
    pairs = enumerate(zip(own, teacher.tokens, strict=True), start=1)
    if differing := next((item for item in pairs if item[1][0] != item[1][1]), None):
        place, (mine, theirs) = differing
        return Fault(
            f"token {place} of the answer is number {mine} for the student and {theirs} for the"
            " teacher",
            remedy,
        )
    if teacher.prompt_tokens is not None and begin != teacher.prompt_tokens:
        return Fault(
            f"the prompt is {begin} tokens for the student and was {teacher.prompt_tokens} for the"
            " teacher",
            f"{remedy}, with the same messages",
        )
    return {"target": teacher}


def label_names(target: Any) -> list[str]:
    """Return the labels of a row as texts: 1.0 and 1 are the same one, as tables have numbers."""
    values = target if isinstance(target, list) else [target]
    return [
        str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
        for value in values
    ]


add_format("preference", ("chosen", "rejected"), _preference, ("prompt", *_CHAT_FIELDS))
add_format("rated", ("prompt", "completion", "label"), _rated, _CHAT_FIELDS, also=("preference",))
add_format(
    "distilled",
    ("target_tokens", "top_logprobs"),
    _distilled,
    ("messages", "prompt", "reference", "prompt_tokens", "error", *_CHAT_FIELDS),
)
add_format("labelled", ("label",), _labelled, ("text", "messages", "prompt", *_CHAT_FIELDS))
add_format("scored_pairs", ("text1", "text2", "score"), _scored, ("weight",))
add_format(
    "pairs",
    ("query", "positive"),
    _pairs,
    ("negatives", "negative", "weight"),
    also=("scored_pairs",),
)

PART_NAMES: Final = {
    "preference": ("chosen", "rejected"),
    "rated": ("answer",),
    "distilled": ("answer",),
    "labelled": ("label",),
    "pairs": ("query", "positive", "negative"),
    "scored_pairs": ("text1", "text2"),
}
"""What the parts of a row are, for people; the last name stands for all that follow."""
