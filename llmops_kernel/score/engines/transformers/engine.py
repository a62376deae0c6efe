"""The engine on Transformers: needs nothing beyond what training needs."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch

from llmops_kernel.hardware.precision import cpu_facts, gpu_facts
from llmops_kernel.score.engines.prompts import Item, PromptError, failed, next_batch, prepare
from llmops_kernel.score.engines.protocol import Answer, EngineSpec, EngineStats, Job, Request
from llmops_kernel.score.engines.transformers.adapters import Adapters
from llmops_kernel.score.engines.transformers.decoding import Decoding
from llmops_kernel.score.engines.transformers.forward import Forward, classify, embed, logprob
from llmops_kernel.score.engines.transformers.loading import Loaded, load


class TransformersEngine:
    """Works on one batch at a time, of requests of one job and of about the same length."""

    def __init__(self, spec: EngineSpec) -> None:
        """Load the model. Raises ModelError."""
        device = partial(gpu_facts, torch.cuda) if spec.num_gpus > 0 else cpu_facts
        self.spec, self.precision = spec.resolved(device)
        self._loaded: Loaded | None = load(self.spec)
        self._adapters = Adapters(self._loaded.model, spec.model)
        self._queue: deque[Item] = deque()
        self._answers: list[Answer] = []
        self._decoding: Decoding | None = None
        self._grammars: Any = None

    @property
    def loaded(self) -> Loaded:
        if self._loaded is None:
            raise RuntimeError("the engine is closed")
        return self._loaded

    def add(self, request: Request, job: Job) -> None:
        try:
            self._queue.append(prepare(self.loaded.tokenizer, request, job, self.loaded.context))
        except PromptError as error:
            self._answers.append(failed(request, error))

    def step(self) -> list[Answer]:
        answers, self._answers = self._answers, []
        if self._decoding is None and self._queue:
            answers += self._start()
        elif self._decoding is not None:
            answers += self._decoding.step()
        if self._decoding is not None and not self._decoding.items:
            self._decoding = None
        return answers

    def _start(self) -> list[Answer]:
        """Begin the next batch."""
        items = next_batch(list(self._queue), self.spec.batch_size)
        batch_ids = {id(item) for item in items}
        self._queue = deque(item for item in self._queue if id(item) not in batch_ids)
        try:
            return self._run(items)
        except PromptError as error:
            return [failed(item.request, error) for item in items]

    def _run(self, items: list[Item]) -> list[Answer]:
        job = items[0].job
        forward = Forward(self.loaded, self._adapters.select(job.adapter))
        if job.task == "classify":
            return classify(self.loaded, forward, items)
        if job.task == "logprob":
            return list(logprob(self.loaded, forward, items))
        if job.task == "embed":
            return list(embed(forward, items))
        matcher = self._matcher(job) if job.task == "json" else None
        self._decoding = Decoding(self.loaded, forward, items, matcher)
        return self._decoding.step()

    def _matcher(self, job: Job) -> Any:
        if self._grammars is None:
            self._grammars = _grammars(self.loaded)
        grammars = self._grammars
        grammars.matcher(job.json_schema)  # Raises here what is wrong with the schema.
        return lambda: grammars.matcher(job.json_schema)

    def cancel(self, ids: Sequence[int]) -> None:
        cancelled = set(ids)
        self._queue = deque(item for item in self._queue if item.request.id not in cancelled)
        self._answers = [answer for answer in self._answers if answer.id not in cancelled]
        if self._decoding is not None:
            self._decoding.cancel(cancelled)
            if not self._decoding.items:
                self._decoding = None

    @property
    def _running(self) -> int:
        decoding = self._decoding
        return len(decoding.items) if decoding else 0

    @property
    def unfinished(self) -> int:
        return len(self._queue) + len(self._answers) + self._running

    def stats(self) -> EngineStats:
        return EngineStats(running=self._running, waiting=len(self._queue))

    def close(self) -> None:
        self._queue.clear()
        self._answers.clear()
        self._decoding = self._grammars = self._loaded = None
        del self._adapters
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


def _grammars(loaded: Loaded) -> Any:
    try:
        from llmops_kernel.score.engines.transformers.decoding import Grammars
    except ImportError as error:
        raise PromptError(
            "the Transformers engine needs llguidance for the task json, which is not installed;"
            " Try: pip install llguidance, or engine.type: vllm"
        ) from error
    return Grammars(loaded)
