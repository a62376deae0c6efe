"""Code that both engines share: tokens of prompts and answers, seeds of rows, JSON schemas."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from llmops_kernel.errors import DataError, ModelError
from llmops_kernel.models.answer_ends import answer_ends, stop_tokens, turn_end
from llmops_kernel.models.answer_spans import Template, laid_out, tokens
from llmops_kernel.score.engines.protocol import Answer, Encoder, Job, Prompt, Request

MAX_CONTEXT = 4096
"""Tokens of prompt and answer where the config names no limit."""

NAN = (
    "the model's output is not a number (NaN); Try: model.dtype float32, or look at the adapter"
    " and the training run that it comes from"
)


class PromptError(Exception):
    """Raised for a request that cannot be answered."""


def context_length(made_for: int | None, configured: int | None) -> int:
    """Return the longest prompt with its answer, in tokens. Raises ModelError."""
    if made_for is not None and configured is not None and configured > made_for:
        raise ModelError(
            f"engine.max_model_len is {configured:,}, and the model was made for {made_for:,}"
            " tokens.",
            remedy=f"set it to at most {made_for}, or leave it out",
        )
    return configured or min(made_for or MAX_CONTEXT, MAX_CONTEXT)


def prompt_tokens(tokenizer: Any, prompt: Prompt, *, is_answered: bool = True) -> list[int]:
    """Return a text's tokens, with those that the tokenizer puts around one; or a chat's.

    `is_answered`: a chat is followed by an answer. Raises PromptError.
    """
    if not isinstance(prompt, str):
        return _chat_tokens(tokenizer, prompt, is_answered=is_answered)
    try:
        ids: list[int] = tokenizer(prompt).input_ids
    except Exception as error:  # Such as half of a character.
        raise PromptError(f"the model's tokenizer rejects the prompt: {error}") from error
    if not ids:
        raise PromptError("the prompt is empty, and this model needs at least one token")
    # A text that a chat template has written begins with the first token already.
    begin = getattr(tokenizer, "bos_token_id", None)
    return ids[1:] if begin is not None and ids[:2] == [begin, begin] else ids


def _chat_tokens(tokenizer: Any, messages: list[dict[str, str]], *, is_answered: bool) -> list[int]:
    if tokenizer.chat_template is None:
        raise PromptError(
            "the model has no chat template, so it cannot be asked with messages;"
            " use a text as the prompt (prompt.chat: false)"
        )
    try:
        text = tokenizer.apply_chat_template(
            messages, tokenize=False, add_generation_prompt=is_answered
        )
        # The template has written all special tokens.
        ids: list[int] = tokenizer(text, add_special_tokens=False).input_ids
    except Exception as error:  # A template is a program of the model's author.
        raise PromptError(f"the model's chat template rejects the messages: {error}") from error
    return ids


def answer_tokens(tokenizer: Any, text: str) -> list[int]:
    """Return the tokens of a text that follows a prompt.

    They are of the text alone, as a model also adds tokens to a prompt's without changing them.
    """
    ids: list[int] = tokenizer(text, add_special_tokens=False).input_ids
    return ids


def learnt_answer(tokenizer: Any, prompt: Prompt, answer: str) -> tuple[list[int], list[int]]:
    """Return the tokens of a chat up to an answer, and those of the answer as a training has them.

    They are the tokens that carry loss in imitation (`models.answer_spans`): of the whole chat in
    its template, with what ends the turn, such as `<|im_end|>` and a line break. Unlike
    `answer_tokens`, which are of the text alone. Raises PromptError.
    """
    if isinstance(prompt, str) or not answer:
        raise PromptError("top_k rates the answer in a chat: give messages and a reference")
    chat = [*prompt, {"role": "assistant", "content": answer}]
    is_learnt = [message is chat[-1] for message in chat]
    try:
        layout = laid_out(chat, is_learnt, 0, Template(tokenizer))[-1]
        ids, inside = tokens(layout, tokenizer)
    except DataError as error:
        raise PromptError(error.message.removeprefix("Row 0: ")) from error
    except Exception as error:  # A template is a program of the model's author.
        raise PromptError(f"the model's chat template rejects the messages: {error}") from error
    places = [place for place, is_inside in enumerate(inside) if is_inside]
    if not places or not places[0] or len(places) != places[-1] + 1 - places[0]:
        raise PromptError("the chat template does not write the reference in one piece")
    return ids[: places[0]], ids[places[0] : places[-1] + 1]


def check_length(prompt: int, answer: int, context: int) -> None:
    """Raise PromptError where a prompt and its answer are longer than the context."""
    if prompt + answer <= context:
        return
    problem = f"the prompt has {prompt:,} tokens"
    if answer > 1:
        problem += f" and what follows it {answer:,}"
    reserved = f", of which {answer} is for the answer" if answer == 1 else ""
    raise PromptError(
        f"{problem}; the engine's context (engine.max_model_len) is {context:,}{reserved}"
    )


def row_seed(request: Request, job: Job) -> int:
    """Return a seed of the row's own, the same in each run and however the rows are divided."""
    digest = hashlib.blake2b(f"{job.seed}:{request.row}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


def failed(request: Request, error: object, *, prompt_tokens: int = 0) -> Answer:
    """Return the answer of a request that has none."""
    return Answer(id=request.id, finish="error", error=str(error), prompt_tokens=prompt_tokens)


def choice_probabilities(logprobs: Mapping[str, float]) -> dict[str, float]:
    """Return the probability of each choice, given that one of them is the answer.

    A choice's likelihood is the product of its tokens' probabilities after the prompt, as GPT-3 was
    evaluated (arxiv.org/abs/2005.14165, section 2.4) and as `acc` of lm-evaluation-harness
    compares choices; here divided by the sum over the choices. Not by length: a longer choice is a
    less probable text.
    """
    most = max(logprobs.values())
    shares = {choice: math.exp(value - most) for choice, value in logprobs.items()}
    total = sum(shares.values())
    return {choice: share / total for choice, share in shares.items()}


def closed_schema(text: str) -> dict[str, Any]:
    """Return a JSON schema whose objects have only the properties that it names.

    JSON schema allows any others unless it says no, which a small model would go on writing.
    Raises PromptError.
    """
    try:
        schema = json.loads(text)
    except ValueError as error:
        raise PromptError(f"the JSON schema is not JSON: {error}") from error
    if not isinstance(schema, dict):
        raise PromptError("the JSON schema is not an object")
    _close(schema)
    return schema


def _close(node: Any) -> None:
    if isinstance(node, dict):
        if isinstance(node.get("properties"), dict):
            node.setdefault("additionalProperties", False)
        for key, value in node.items():
            if key not in ("enum", "const", "default", "examples"):
                _close(value)
    elif isinstance(node, list):
        for value in node:
            _close(value)


def cut_at_stop(text: str, stop: Sequence[str]) -> str | None:
    """Return the text before the first stop text, or None where there is none."""
    ends = [text.find(stop_text) for stop_text in stop if stop_text and stop_text in text]
    return text[: min(ends)] if ends else None


# --- Requests that are ready for a batch ---


MAX_BATCH_TOKENS = 32_768
"""Most tokens, padding included, that are read in one forward pass."""
WINDOW = 4
"""Batches among whose prompts those of like length are looked for."""


@dataclass(slots=True)
class Item:
    """A request with the tokens of its prompt."""

    request: Request
    job: Job
    prompt: list[int]
    target: list[int] = field(default_factory=list)
    """Tokens after the prompt whose probability is returned."""
    ends: tuple[int, ...] = ()
    """Tokens that end the answer: of tokenizer, chat template, and stop texts that are tokens."""
    stop: tuple[str, ...] = ()
    """Texts that end the answer."""
    is_cut: bool = False
    """The text was longer than the model reads."""

    @property
    def length(self) -> int:
        return len(self.prompt) + len(self.target)


def prepare(tokenizer: Any, request: Request, job: Job, context: int) -> Item:
    """Raise PromptError for a request that cannot be answered."""
    if job.top_logprobs:
        prompt, target = learnt_answer(tokenizer, request.prompt, request.target)
        check_length(len(prompt), len(target) + 1, context)
        return Item(request=request, job=job, prompt=prompt, target=target)
    if job.encoder is not None:
        return _encoded(tokenizer, request, job, context)
    is_answered = job.task != "value" and not job.labels
    tokens = prompt_tokens(tokenizer, request.prompt, is_answered=is_answered)
    item = Item(request=request, job=job, prompt=tokens)
    if not is_answered:
        check_length(len(tokens), 0, context)
        return item
    item.ends = (*answer_ends(tokenizer), *stop_tokens(tokenizer, job.stop))
    item.stop = job.stop
    if not isinstance(request.prompt, str) and (end := turn_end(tokenizer)).token is None:
        item.stop = (*job.stop, end.text) if end.text else job.stop
    follows = 0 if job.task == "embed" else 1
    if job.task == "logprob":
        item.target = answer_tokens(tokenizer, request.target) if request.target else []
        if request.target and not item.target:
            raise PromptError(
                "the reference has no tokens, so the task logprob has nothing to rate"
            )
        follows += len(item.target)
    elif job.task == "classify":
        sizes = [len(answer_tokens(tokenizer, choice)) for choice in job.choices]
        if not sizes or min(sizes) == 0:
            raise PromptError("classify needs choices, none of them empty")
        follows = max(sizes)
    check_length(len(item.prompt), follows, context)
    return item


def _encoded(tokenizer: Any, request: Request, job: Job, context: int) -> Item:
    """Return a text for a vector, cut as sentence-transformers cuts it; a chat is never cut."""
    encoder, prompt = job.encoder or Encoder(), request.prompt
    if not isinstance(prompt, str):
        *before, last = prompt
        prompt = [*before, {**last, "content": encoder.prefix + last["content"]}]
        tokens = prompt_tokens(tokenizer, prompt, is_answered=False)
        check_length(len(tokens), 0, context)
        return Item(request=request, job=job, prompt=tokens)
    text = encoder.prefix + prompt
    text = text.lower() if encoder.is_lower_case else text
    tokens = prompt_tokens(tokenizer, text)
    limit = min(context, encoder.max_length or context)
    if is_cut := len(tokens) > limit:
        tokens = tokenizer(text, truncation=True, max_length=limit).input_ids
    return Item(request=request, job=job, prompt=tokens, is_cut=is_cut)


def next_batch(queue: Sequence[Item], size: int) -> list[Item]:
    """Return the oldest item and others of its call with prompts of about the same length.

    Of streamed calls, which have a prompt each, those of the same job.
    """
    oldest = queue[0]
    call = None if oldest.job.stream else oldest.request.call
    like = (item for item in queue if item.job == oldest.job)
    window = [item for item in like if call in (None, item.request.call)][: size * WINDOW]
    window.sort(key=lambda item: item.length)
    place = next(number for number, item in enumerate(window) if item is oldest)
    batch = window[place : place + size]
    if len(batch) < size:
        batch = window[max(0, len(window) - size) :]
    while len(batch) > 1 and len(batch) * batch[-1].length > MAX_BATCH_TOKENS:
        # The one farthest from the oldest in length leaves; the others are as long as it needs.
        batch.pop(-1 if batch[-1] is not oldest else 0)
    return batch
