"""The engine on vLLM: continuous batching, prefix cache, adapters side by side.

On CPUs it is faster with libtcmalloc and libiomp5 in LD_PRELOAD (see vLLM's page on CPUs);
that must be set before the process starts, so it belongs to the cluster template.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from llmops_kernel.hardware.precision import cpu_facts
from llmops_kernel.score.engines.checkpoint import check_adapter, load_error, version_of
from llmops_kernel.score.engines.item import prepare
from llmops_kernel.score.engines.prompts import NAN, PromptError, answer_tokens, failed
from llmops_kernel.score.engines.protocol import Answer, EngineSpec, EngineStats, Job, Request
from llmops_kernel.score.engines.vllm import compat
from llmops_kernel.score.engines.vllm.compat import shut_down
from llmops_kernel.score.engines.vllm.load import Engine, load
from llmops_kernel.score.engines.vllm.orphans import watch_over_this_process
from llmops_kernel.score.engines.vllm.tasks import TASKS, Part, Task, Tokens


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
        self._parts: dict[str, tuple[Task, Part]] = {}
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

    def _send(self, task: Task, part: Part) -> None:
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
            what = "JSON schema" if job.task == "json" else "request"
            raise PromptError(f"vLLM rejects the {what}: {error}") from error
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
        wanted = self.engine.names.LoRARequest(key, len(self._adapters) + 1, folder)
        try:
            self.engine.core.add_lora(wanted)
        except Exception as error:  # Whatever the files make vLLM raise.
            raise PromptError(f"the adapter {folder} cannot be loaded: {error}") from error
        self._adapters[key] = wanted
        return wanted

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
        gone = set(ids)
        self._answers = [answer for answer in self._answers if answer.id not in gone]
        for one in gone & self._tasks.keys():
            self._forget(self._tasks[one])

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
