"""The engine on vLLM: continuous batching, prefix cache, adapters side by side.

On CPUs it is faster with libtcmalloc and libiomp5 in LD_PRELOAD (see vLLM's page on CPUs);
that must be set before the process starts, so it belongs to the cluster template.
"""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from llmops_kernel.hardware.precision import cpu_facts
from llmops_kernel.score.engines.checkpoint import check_adapter, load_error, version_of
from llmops_kernel.score.engines.prompts import (
    NAN,
    Item,
    PromptError,
    answer_tokens,
    choice_probabilities,
    closed_schema,
    failed,
    prepare,
    row_seed,
)
from llmops_kernel.score.engines.protocol import (
    Answer,
    EngineSpec,
    EngineStats,
    Finish,
    Job,
    Request,
)
from llmops_kernel.score.engines.vllm import compat
from llmops_kernel.score.engines.vllm.compat import shut_down
from llmops_kernel.score.engines.vllm.load import Engine, load
from llmops_kernel.score.engines.vllm.orphans import watch_over_this_process


class VllmEngine:
    """Hands requests to vLLM's scheduler as they come; jobs and adapters mix in a batch."""

    def __init__(self, spec: EngineSpec) -> None:
        """Load the model. Raises ModelError, MissingDependencyError."""
        device = compat.gpu_facts if spec.num_gpus > 0 else cpu_facts
        self.spec, self.precision = spec.resolved(device)
        self._stats = EngineStats()
        self._queried = self._hit = 0
        self._watcher = watch_over_this_process() if spec.num_gpus > 0 else None
        self._engine: Engine | None = load(self.spec, self._on_stats)
        self._tokenizer = self._engine.core.get_tokenizer()
        self._tasks: dict[int, Task] = {}
        self._parts: dict[str, tuple[Task, CoreRequest]] = {}
        self._count = 0
        self._answers: list[Answer] = []
        self._adapters: dict[str, Any] = {}
        self._choices: dict[tuple[str, ...], list[tuple[str, Tokens]]] = {}
        self._try_out()

    @property
    def engine(self) -> Engine:
        if self._engine is None:
            raise RuntimeError("the engine is closed")
        return self._engine

    def _try_out(self) -> None:
        """Answer once: kernels are chosen only now, and may not exist for the model's shapes."""
        job = Job(task="embed" if self.spec.embeds else "generate", max_tokens=1)
        try:
            self._submit(Request(id=0, prompt="a"), job)
            while self.unfinished:
                self.step()
        except Exception as error:  # vLLM raises whatever its parts raise.
            self.close()
            raise load_error(self.spec, error) from error
        self._queried = self._hit = 0

    def add(self, request: Request, job: Job) -> None:
        try:
            self._submit(request, job)
        except PromptError as error:
            if request.id in self._tasks:
                self._forget(self._tasks[request.id])
            self._answers.append(failed(request, error))

    def _submit(self, request: Request, job: Job) -> None:
        if (job.task == "embed") != self.spec.embeds:
            raise PromptError(
                f"the engine was loaded with embeds={self.spec.embeds}, the task is {job.task}"
            )
        item = prepare(self._tokenizer, request, job, self.engine.context)
        if job.adapter:
            self._adapter(job.adapter)
        task = TASKS[job.task](item, self.engine.names, self._choice_tokens(job.choices))
        self._tasks[request.id] = task
        for part in task.start():
            self._send(task, part)

    def _choice_tokens(self, choices: tuple[str, ...]) -> list[tuple[str, Tokens]]:
        if choices not in self._choices:
            self._choices[choices] = [
                (choice, tuple(answer_tokens(self._tokenizer, choice))) for choice in choices
            ]
        return self._choices[choices]

    def _send(self, task: Task, part: CoreRequest) -> None:
        self._count += 1
        name = str(self._count)
        job, names = task.item.job, self.engine.names
        try:
            self.engine.core.add_request(
                name,
                names.tokens_input([*task.item.prompt, *part.after]),
                part.params,
                lora_request=self._adapter(job.adapter) if job.adapter else None,
            )
        except (names.VLLMValidationError, ValueError) as error:
            subject = "JSON schema" if job.task == "json" else "request"
            more = (
                f"; Try: engine.options: {{max_logprobs: {job.top_logprobs}}}"
                if job.top_logprobs and "logprobs" in str(error)
                else ""
            )
            raise PromptError(f"vLLM rejects the {subject}: {error}{more}") from error
        self._parts[name] = (task, part)
        task.sent.add(name)

    def _adapter(self, folder: str) -> Any:
        """Return an adapter for vLLM, loading it first where needed. Raises PromptError."""
        key = version_of(folder)
        if key in self._adapters:
            return self._adapters[key]
        if not self.spec.max_lora_rank:
            raise PromptError(
                f"the engine was loaded without adapters (max_lora_rank is 0),"
                f" so {folder} cannot be used"
            )
        rank = check_adapter(folder, self.engine.base, self.spec.model)
        if rank > self.engine.max_rank:
            raise PromptError(
                f"the adapter {folder} has rank {rank}; the engine was loaded for ranks up to"
                f" {self.engine.max_rank}"
            )
        request = self.engine.names.LoRARequest(key, len(self._adapters) + 1, folder)
        try:
            self.engine.core.add_lora(request)
        except Exception as error:  # Whatever the files make vLLM raise.
            raise PromptError(f"the adapter {folder} cannot be loaded: {error}") from error
        self._adapters[key] = request
        return request

    def step(self) -> list[Answer]:
        answers, self._answers = self._answers, []
        if self._parts:
            for output in self.engine.core.step():
                answers += self._take(output)
        return answers

    def _take(self, output: Any) -> list[Answer]:
        if output.request_id not in self._parts:
            return []
        task, part = self._parts[output.request_id]
        answer = task.take(part, output)
        if output.finished:
            del self._parts[output.request_id]
            task.sent.discard(output.request_id)
        if answer is not None and _is_nan(answer, output):
            answer = failed(task.item.request, NAN, prompt_tokens=len(task.item.prompt))
        if answer is not None:
            if answer.is_final:
                self._forget(task)
            return [answer]
        for further in task.more():
            self._send(task, further)
        return []

    def _forget(self, task: Task) -> None:
        self._tasks.pop(task.item.request.id, None)
        if task.sent:
            for name in task.sent:
                del self._parts[name]
            self.engine.core.abort_request(sorted(task.sent))
            task.sent.clear()

    def cancel(self, ids: Sequence[int]) -> None:
        cancelled = set(ids)
        self._answers = [answer for answer in self._answers if answer.id not in cancelled]
        for request_id in cancelled & self._tasks.keys():
            self._forget(self._tasks[request_id])

    @property
    def unfinished(self) -> int:
        return len(self._tasks) + len(self._answers)

    def _on_stats(self, stats: Any) -> None:
        prefix = stats.prefix_cache_stats
        self._queried += prefix.queries
        self._hit += prefix.hits
        self._stats = EngineStats(
            running=stats.num_running_reqs,
            waiting=stats.num_waiting_reqs + stats.num_skipped_waiting_reqs,
            kv_cache=stats.kv_cache_usage,
            prefix_hits=self._hit / self._queried if self._queried else None,
        )

    def stats(self) -> EngineStats:
        return self._stats

    def close(self) -> None:
        engine, self._engine = self._engine, None
        self._tasks.clear()
        self._parts.clear()
        self._answers.clear()
        if engine is not None:
            shut_down(engine.core)
        if self._watcher is not None:
            self._watcher.terminate()
            self._watcher.wait()


def _is_nan(answer: Answer, output: Any) -> bool:
    metrics = getattr(output, "metrics", None)
    if metrics is not None and getattr(metrics, "is_corrupted", False):
        return True
    if answer.embedding is not None:
        return any(math.isnan(value) for value in answer.embedding)
    return answer.logprob is not None and math.isnan(answer.logprob)


# --- Requests and answers as vLLM's requests and outputs ---


Tokens = tuple[int, ...]


@dataclass(frozen=True)
class CoreRequest:
    """A request to vLLM: its tokens are the prompt's and then `after`."""

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
    def start(self) -> Iterator[CoreRequest]:
        """Return the first parts. Raises PromptError."""

    @abstractmethod
    def take(self, part: CoreRequest, output: Any) -> Answer | None:
        """Take the output of a part; return an answer where there is one."""

    def more(self) -> Iterator[CoreRequest]:
        """Return the parts that were only possible after the output just taken."""
        yield from ()

    def _scoring(self, **options: Any) -> Any:
        """Return parameters of a request whose text is not used."""
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

    def start(self) -> Iterator[CoreRequest]:
        job, kinds = self.item.job, self.names.RequestOutputKind
        is_greedy = job.temperature <= 0
        options: dict[str, Any] = {}
        if not is_greedy:
            options = {"top_p": job.top_p, "top_k": job.top_k or 0}
            options["seed"] = row_seed(self.item.request, job)
        if job.task == "json":
            schema = json.dumps(closed_schema(job.json_schema))
            options["structured_outputs"] = self.names.StructuredOutputsParams(json=schema)
        yield CoreRequest(
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

    def take(self, part: CoreRequest, output: Any) -> Answer | None:
        completion = output.outputs[0]
        finish: Finish = "length" if completion.finish_reason in ("length", None) else "stop"
        return self._answer(
            text=completion.text,
            output_tokens=len(completion.token_ids),
            finish=finish,
            is_final=output.finished,
        )


class Choose(Task):
    """`classify`: see `choice_probabilities`.

    The choices are a tree of tokens. At each node where one goes on, vLLM is asked for the
    probabilities of its next tokens: the prompt comes from the prefix cache, which is why the
    nodes below the first wait for it. (`prompt_logprobs` cannot use that cache.)
    """

    def start(self) -> Iterator[CoreRequest]:
        self._logprobs: dict[tuple[Tokens, int], float] = {}
        self._next: dict[Tokens, set[int]] = {}
        for _, tokens in self.choices:
            for place, token in enumerate(tokens):
                self._next.setdefault(tokens[:place], set()).add(token)
        self._waiting = 0
        self._is_first = True
        yield from self._parts(())

    def _parts(self, node: Tokens) -> Iterator[CoreRequest]:
        token_ids = sorted(self._next[node])
        size = self.names.MAX_LOGPROB_TOKEN_IDS
        for start in range(0, len(token_ids), size):
            self._waiting += 1
            yield CoreRequest(
                node, self._scoring(logprob_token_ids=token_ids[start : start + size])
            )

    def take(self, part: CoreRequest, output: Any) -> Answer | None:
        (logprobs,) = output.outputs[0].logprobs
        for token in part.params.logprob_token_ids:
            self._logprobs[part.after, token] = logprobs[token].logprob
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

    def more(self) -> Iterator[CoreRequest]:
        if self._is_first and not self._waiting:
            self._is_first = False
            for node in self._next:
                if node:
                    yield from self._parts(node)

    def _sum(self, tokens: Tokens) -> float:
        return sum(self._logprobs[tokens[:place], token] for place, token in enumerate(tokens))


class Weigh(Task):
    """`logprob`: of the target, or of the prompt's own tokens from the second on."""

    def start(self) -> Iterator[CoreRequest]:
        most = self.item.job.top_logprobs
        yield CoreRequest(tuple(self.item.target), self._scoring(prompt_logprobs=most))

    def take(self, part: CoreRequest, output: Any) -> Answer | None:
        tokens = [*self.item.prompt, *part.after]
        count = len(part.after) or len(tokens) - 1
        pairs = list(zip(tokens, output.prompt_logprobs, strict=True))[len(tokens) - count :]
        total = sum(logprobs[token].logprob for token, logprobs in pairs)
        answer = self._answer(output_tokens=count, logprob=float(total))
        if most := self.item.job.top_logprobs:
            # vLLM adds the target's own token where it is not among the most probable ones.
            ranked = [sorted(place.items(), key=lambda pair: pair[1].rank) for _, place in pairs]
            answer.target_tokens = list(part.after)
            answer.top_tokens = [[token for token, _ in top[:most]] for top in ranked]
            answer.top_logprobs = [[one.logprob for _, one in top[:most]] for top in ranked]
        return answer


class Embed(Task):
    """`embed`: pooled from the last layer's output as the engine's spec says."""

    def start(self) -> Iterator[CoreRequest]:
        yield CoreRequest((), self.names.PoolingParams(task="embed"))

    def take(self, part: CoreRequest, output: Any) -> Answer | None:
        finish: Finish = "length" if self.item.is_cut else "stop"
        return self._answer(embedding=output.outputs.data.tolist(), finish=finish)


TASKS: dict[str, Callable[..., Task]] = {
    "generate": Write,
    "json": Write,
    "classify": Choose,
    "logprob": Weigh,
    "embed": Embed,
}
