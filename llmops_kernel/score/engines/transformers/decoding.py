"""Writes the answers of a batch, one token of each in a step."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from llmops_kernel.score.engines.item import Item
from llmops_kernel.score.engines.prompts import NAN, cut_at_stop, failed, row_seed
from llmops_kernel.score.engines.protocol import Answer, Finish
from llmops_kernel.score.engines.transformers.forward import Forward
from llmops_kernel.score.engines.transformers.grammar import Matcher
from llmops_kernel.score.engines.transformers.loading import Loaded
from llmops_kernel.score.engines.transformers.sampling import choose

_INCOMPLETE = "�"
"""What bytes become that are not a whole character; at the end of an answer vLLM leaves it out."""


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
