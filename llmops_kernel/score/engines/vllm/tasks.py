"""How a request becomes one or several of vLLM's, and their outputs its answer."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from llmops_kernel.score.engines.item import Item
from llmops_kernel.score.engines.prompts import choice_probabilities, closed_schema, row_seed
from llmops_kernel.score.engines.protocol import Answer, Finish

Tokens = tuple[int, ...]


@dataclass(frozen=True)
class Part:
    """One request to vLLM: its tokens are the prompt's and then `after`."""

    after: Tokens
    params: Any


class Task(ABC):
    """A request at work."""

    def __init__(self, item: Item, names: Any, choices: Sequence[tuple[str, Tokens]]) -> None:
        self.item = item
        self.names = names
        self.choices = choices
        """For `classify`: each with its tokens."""
        self.sent: set[str] = set()
        """Ids of its unfinished parts."""

    @abstractmethod
    def start(self) -> Iterator[Part]:
        """Return the first parts. Raises PromptError."""

    @abstractmethod
    def take(self, part: Part, output: Any) -> Answer | None:
        """Take the output of a part; return an answer where there is one."""

    def more(self) -> Iterator[Part]:
        """Return the parts that were only possible after the output just taken."""
        yield from ()

    def _scoring(self, **options: Any) -> Any:
        """Return parameters of a request whose text nobody wants."""
        return self.names.SamplingParams(
            temperature=0.0,
            max_tokens=1,
            detokenize=False,
            output_kind=self.names.RequestOutputKind.FINAL_ONLY,
            **options,
        )

    def _answer(self, **values: Any) -> Answer:
        return Answer(id=self.item.request.id, prompt_tokens=len(self.item.prompt), **values)


class Write(Task):
    """`generate` and `json`."""

    def start(self) -> Iterator[Part]:
        job, kinds = self.item.job, self.names.RequestOutputKind
        is_greedy = job.temperature <= 0
        options: dict[str, Any] = {}
        if not is_greedy:
            options = {"top_p": job.top_p, "top_k": job.top_k or 0}
            options["seed"] = row_seed(self.item.request, job)
        if job.task == "json":
            schema = json.dumps(closed_schema(job.json_schema))
            options["structured_outputs"] = self.names.StructuredOutputsParams(json=schema)
        yield Part(
            (),
            self.names.SamplingParams(
                temperature=job.temperature,
                max_tokens=job.max_tokens,
                stop=list(self.item.stop),
                # vLLM adds those of the model's generation settings by itself.
                stop_token_ids=list(self.item.ends),
                output_kind=kinds.CUMULATIVE if job.stream else kinds.FINAL_ONLY,
                **options,
            ),
        )

    def take(self, part: Part, output: Any) -> Answer | None:
        written = output.outputs[0]
        finish: Finish = "length" if written.finish_reason in ("length", None) else "stop"
        return self._answer(
            text=written.text,
            output_tokens=len(written.token_ids),
            finish=finish,
            is_final=output.finished,
        )


class Choose(Task):
    """`classify`: see `choice_probabilities`.

    The choices are a tree of tokens. At each node where one goes on, vLLM is asked for the
    probabilities of its next tokens: the prompt comes from the prefix cache, which is why the
    nodes below the first wait for it. (`prompt_logprobs` cannot use that cache.)
    """

    def start(self) -> Iterator[Part]:
        self._logprobs: dict[tuple[Tokens, int], float] = {}
        self._next: dict[Tokens, set[int]] = {}
        for _, tokens in self.choices:
            for place, token in enumerate(tokens):
                self._next.setdefault(tokens[:place], set()).add(token)
        self._waiting = 0
        self._is_first = True
        yield from self._parts(())

    def _parts(self, node: Tokens) -> Iterator[Part]:
        wanted = sorted(self._next[node])
        size = self.names.MAX_LOGPROB_TOKEN_IDS
        for start in range(0, len(wanted), size):
            self._waiting += 1
            yield Part(node, self._scoring(logprob_token_ids=wanted[start : start + size]))

    def take(self, part: Part, output: Any) -> Answer | None:
        (found,) = output.outputs[0].logprobs
        for token in part.params.logprob_token_ids:
            self._logprobs[part.after, token] = found[token].logprob
        self._waiting -= 1
        if self._waiting or (self._is_first and len(self._next) > 1):
            return None
        sums = {choice: self._sum(tokens) for choice, tokens in self.choices}
        best = max(sums, key=sums.__getitem__)
        return self._answer(
            text=best,
            output_tokens=len(dict(self.choices)[best]),
            logprob=sums[best],
            scores=choice_probabilities(sums),
        )

    def more(self) -> Iterator[Part]:
        if self._is_first and not self._waiting:
            self._is_first = False
            for node in self._next:
                if node:
                    yield from self._parts(node)

    def _sum(self, tokens: Tokens) -> float:
        return sum(self._logprobs[tokens[:place], one] for place, one in enumerate(tokens))


class Weigh(Task):
    """`logprob`: of the target, or of the prompt's own tokens from the second on."""

    def start(self) -> Iterator[Part]:
        yield Part(tuple(self.item.target), self._scoring(prompt_logprobs=0))

    def take(self, part: Part, output: Any) -> Answer | None:
        tokens = [*self.item.prompt, *part.after]
        count = len(part.after) or len(tokens) - 1
        pairs = list(zip(tokens, output.prompt_logprobs, strict=True))[len(tokens) - count :]
        total = sum(found[token].logprob for token, found in pairs)
        return self._answer(output_tokens=count, logprob=float(total))


class Embed(Task):
    """`embed`: the mean over the prompt of the last layer's output, of length 1."""

    def start(self) -> Iterator[Part]:
        yield Part((), self.names.PoolingParams(task="embed"))

    def take(self, part: Part, output: Any) -> Answer | None:
        return self._answer(embedding=output.outputs.data.tolist())


TASKS: dict[str, Callable[..., Task]] = {
    "generate": Write,
    "json": Write,
    "classify": Choose,
    "logprob": Weigh,
    "embed": Embed,
}
