"""Writes the answers of a batch, one token of each in a step."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import llguidance
import numpy as np
import torch
from llguidance.hf import from_tokenizer
from llguidance.numpy import allocate_token_bitmask, fill_next_token_bitmask

from llmops_kernel.score.engines.prompts import (
    NAN,
    Item,
    PromptError,
    closed_schema,
    cut_at_stop,
    failed,
    row_seed,
)
from llmops_kernel.score.engines.protocol import Answer, Finish, Job
from llmops_kernel.score.engines.transformers.forward import Forward, Loaded

_INCOMPLETE = "�"
"""The replacement of bytes that are no whole character; vLLM leaves it out at an answer's end."""


@dataclass(slots=True)
class _Row:
    item: Item
    place: int
    """Number of its row in the forward pass."""
    limit: int
    """Most tokens of the answer."""
    generator: torch.Generator
    matcher: Matcher | None
    tokens: list[int] = field(default_factory=list)
    logprob: float = 0.0
    sent: str = ""


class Decoding:
    """The unfinished answers of a batch of one job."""

    def __init__(
        self,
        loaded: Loaded,
        forward: Forward,
        items: Sequence[Item],
        matcher: Callable[[], Matcher] | None = None,
    ) -> None:
        self._loaded = loaded
        self._forward = forward
        self._job = items[0].job
        self._rows = [
            _Row(
                item=item,
                place=place,
                limit=min(self._job.max_tokens, loaded.context - len(item.prompt)),
                generator=self._generator(item),
                matcher=matcher() if matcher else None,
            )
            for place, item in enumerate(items)
        ]
        self._places = len(items)
        self._started = False

    def _generator(self, item: Item) -> torch.Generator:
        generator = torch.Generator(device=self._loaded.device)
        return generator.manual_seed(row_seed(item.request, item.job))

    @property
    def items(self) -> list[Item]:
        return [row.item for row in self._rows]

    def cancel(self, ids: set[int]) -> None:
        self._rows = [row for row in self._rows if row.item.request.id not in ids]

    def step(self) -> list[Answer]:
        """Write one token of each answer; return those that are finished, or streamed."""
        if not self._rows:
            return []
        logits = self._logits()[[row.place for row in self._rows]]
        allowed = self._allowed() if self._rows[0].matcher else None
        tokens, logprobs = choose(
            logits, self._job, [row.generator for row in self._rows], allowed=allowed
        )
        answers: list[Answer] = []
        for row, token, logprob in zip(list(self._rows), tokens, logprobs, strict=True):
            answers += self._take(row, token, logprob)
        return answers

    def _logits(self) -> torch.Tensor:
        if not self._started:
            self._started = True
            prompts = [row.item.prompt for row in self._rows]
            for place, row in enumerate(self._rows):  # Some may have been cancelled.
                row.place = place
            self._places = len(self._rows)
            output = self._forward.prefill(prompts, use_cache=True)
        else:
            self._compact()
            last = torch.zeros(self._places, 1, dtype=torch.long)
            for row in self._rows:
                last[row.place, 0] = row.tokens[-1]
            output = self._forward.extend(last.to(self._loaded.device))
        logits: torch.Tensor = output.logits[:, -1]
        return logits

    def _compact(self) -> None:
        """Stop computing rows that are finished, once they are half of all."""
        if len(self._rows) * 2 <= self._places and self._forward.select(
            [row.place for row in self._rows]
        ):
            for place, row in enumerate(self._rows):
                row.place = place
            self._places = len(self._rows)

    def _allowed(self) -> torch.Tensor:
        masks = [row.matcher.allowed() for row in self._rows if row.matcher]
        mask = torch.from_numpy(np.stack(masks)[:, : self._loaded.vocabulary])
        return mask.to(self._loaded.device)

    def _take(self, row: _Row, token: int, logprob: float) -> Iterator[Answer]:
        if math.isnan(logprob):
            self._rows.remove(row)
            yield failed(row.item.request, NAN, prompt_tokens=len(row.item.prompt))
            return
        row.tokens.append(token)
        row.logprob += logprob
        if row.matcher:
            row.matcher.accept(token)
        finish, text = self._finish(row)
        if finish is not None:
            self._rows.remove(row)
            yield self._answer(row, text, finish)
        elif self._job.stream and text != row.sent:
            row.sent = text
            yield self._answer(row, text)

    def _finish(self, row: _Row) -> tuple[Finish | None, str]:
        """Return why the answer ends, or None, and its text where that is needed."""
        if row.tokens[-1] in self._loaded.eos or row.tokens[-1] in row.item.ends:
            return "stop", self._text(row.tokens[:-1])
        is_last = len(row.tokens) >= row.limit
        if not (is_last or row.item.stop or self._job.stream):
            return None, ""
        text = self._text(row.tokens)
        cut = cut_at_stop(text, row.item.stop)
        if cut is not None:
            return "stop", cut
        return ("length" if is_last else None), text

    def _text(self, tokens: list[int]) -> str:
        text: str = self._loaded.tokenizer.decode(
            tokens, skip_special_tokens=True, clean_up_tokenization_spaces=False
        )
        return text.rstrip(_INCOMPLETE)

    def _answer(self, row: _Row, text: str, finish: Finish | None = None) -> Answer:
        return Answer(
            id=row.item.request.id,
            text=text,
            prompt_tokens=len(row.item.prompt),
            output_tokens=len(row.tokens),
            finish=finish or "length",
            logprob=row.logprob,
            is_final=finish is not None,
        )


# --- Choice of the next token ---


def choose(
    logits: torch.Tensor,
    job: Job,
    generators: Sequence[torch.Generator],
    allowed: torch.Tensor | None = None,
) -> tuple[list[int], list[float]]:
    """Return each row's next token and its log-probability in the whole distribution.

    The log-probability is NaN where the model's output is. `generators` has one for each row where
    temperature > 0; `allowed` says which tokens may come next.
    """
    logits = logits.float()
    open_to = logits if allowed is None else logits.masked_fill(~allowed, -torch.inf)
    if job.temperature > 0:
        shaped = shape(open_to / job.temperature, top_k=job.top_k, top_p=job.top_p)
        tokens = torch.cat(
            [_draw(row, generator) for row, generator in zip(shaped, generators, strict=True)]
        )
    else:
        tokens = open_to.argmax(dim=-1)
    logprobs = logits.gather(-1, tokens[:, None])[:, 0] - logits.logsumexp(dim=-1)
    return tokens.tolist(), logprobs.tolist()


def shape(logits: torch.Tensor, *, top_k: int | None, top_p: float) -> torch.Tensor:
    """Give -inf to tokens outside of the most probable `top_k`, then `top_p` of the rest."""
    if top_k is not None and top_k < logits.shape[-1]:
        least = logits.topk(top_k, dim=-1).values[:, -1:]
        logits = logits.masked_fill(logits < least, -torch.inf)
    if top_p < 1:
        ordered, index = logits.sort(dim=-1, descending=True)
        probabilities = ordered.softmax(dim=-1)
        # A token is out where those before it have `top_p` already, so the first always stays.
        is_out = probabilities.cumsum(dim=-1) - probabilities >= top_p
        logits = logits.masked_fill(is_out.scatter(-1, index, is_out), -torch.inf)
    return logits


def _draw(row: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    probabilities = row.softmax(dim=-1)
    if not bool(probabilities.isfinite().all()):
        return torch.zeros(1, dtype=torch.long, device=row.device)  # Its log-probability is NaN.
    return torch.multinomial(probabilities, 1, generator=generator)


# --- Answers within a JSON schema, with llguidance, as in vLLM ---


class Grammars:
    """JSON schemas for one model's tokens."""

    def __init__(self, loaded: Loaded) -> None:
        self._size = max(loaded.vocabulary, len(loaded.tokenizer))
        self._tokenizer = from_tokenizer(
            loaded.tokenizer, n_vocab=self._size, eos_token=sorted(loaded.eos)
        )
        self._checked: dict[str, str] = {}

    def matcher(self, schema: str) -> Matcher:
        """Raise PromptError for a schema that cannot be kept."""
        if schema not in self._checked:
            self._checked[schema] = self._grammar(schema)
        matcher = llguidance.LLMatcher(self._tokenizer, self._checked[schema])
        return Matcher(matcher, self._size)

    def _grammar(self, schema: str) -> str:
        # Without a choice of spaces: a small model would go on writing them.
        grammar = llguidance.LLMatcher.grammar_from_json_schema(
            json.dumps(closed_schema(schema)), defaults={"whitespace_flexible": False}
        )
        is_error, problems = llguidance.LLMatcher.validate_grammar_with_warnings(
            grammar, self._tokenizer
        )
        if is_error:
            raise PromptError(f"the JSON schema cannot be used: {problems[0]}")
        return grammar


class Matcher:
    """The position of an answer in the schema."""

    def __init__(self, matcher: Any, size: int) -> None:
        self._matcher = matcher
        self._mask = allocate_token_bitmask(1, size)
        self._size = size

    def allowed(self) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Return for each token whether it may come next."""
        fill_next_token_bitmask(self._matcher, self._mask)
        bits = np.unpackbits(self._mask.view(np.uint8), bitorder="little")
        return bits[: self._size].astype(np.bool_)

    def accept(self, token: int) -> None:
        if not self._matcher.is_stopped():
            self._matcher.consume_token(token)
