"""A request that is ready for a batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from llmops_kernel.models.answer_ends import answer_ends, stop_tokens, turn_end
from llmops_kernel.score.engines.prompts import (
    PromptError,
    answer_tokens,
    check_length,
    prompt_tokens,
)
from llmops_kernel.score.engines.protocol import Job, Request

MAX_BATCH_TOKENS = 32_768
"""Most tokens, padding included, that are read in one forward pass."""
_WINDOW = 4


@dataclass(slots=True)
class Item:
    """A request with the tokens of its prompt."""

    request: Request
    job: Job
    prompt: list[int]
    target: list[int] = field(default_factory=list)
    """Tokens after the prompt whose probability is wanted."""
    ends: tuple[int, ...] = ()
    """Tokens that end the answer: of tokenizer, chat template, and stop texts that are tokens."""
    stop: tuple[str, ...] = ()
    """Texts that end the answer."""

    @property
    def length(self) -> int:
        return len(self.prompt) + len(self.target)


def prepare(tokenizer: Any, request: Request, job: Job, context: int) -> Item:
    """Raise PromptError for a request that cannot be answered."""
    item = Item(request=request, job=job, prompt=prompt_tokens(tokenizer, request.prompt))
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


def next_batch(queue: Sequence[Item], size: int) -> list[Item]:
    """Return the oldest item and others of its job with prompts of about the same length."""
    oldest = queue[0]
    window = [item for item in queue if item.job == oldest.job][: size * _WINDOW]
    window.sort(key=lambda item: item.length)
    place = next(number for number, item in enumerate(window) if item is oldest)
    batch = window[place : place + size]
    if len(batch) < size:
        batch = window[max(0, len(window) - size) :]
    while len(batch) > 1 and len(batch) * batch[-1].length > MAX_BATCH_TOKENS:
        # The one farthest from the oldest in length leaves; the others are as long as it needs.
        batch.pop(-1 if batch[-1] is not oldest else 0)
    return batch
