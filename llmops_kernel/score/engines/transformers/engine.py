"""The engine on Transformers: needs nothing beyond what training needs."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch

from llmops_kernel.hardware.precision import cpu_facts, gpu_facts
from llmops_kernel.score.engines.checkpoint import Shapes, check_adapter, version_of
from llmops_kernel.score.engines.prompts import Item, PromptError, failed, next_batch, prepare
from llmops_kernel.score.engines.protocol import Answer, EngineSpec, EngineStats, Job, Request
from llmops_kernel.score.engines.transformers.decoding import Decoding
from llmops_kernel.score.engines.transformers.forward import (
    Forward,
    Loaded,
    classify,
    embed,
    load,
    logprob,
    read_whole,
)


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
        model = self._adapters.select(job.adapter)
        if job.encoder is not None or job.labels or job.task == "value":
            return list(read_whole(self.loaded, model, items))
        forward = Forward(self.loaded, model)
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


# --- LoRA adapters of one Transformers model: several loaded, one in use ---


MAX_LOADED = 8
"""More are forgotten, the one used longest ago first."""


class Adapters:
    """Loads adapters when they are first used."""

    def __init__(self, model: Any, name: str) -> None:
        self._model = model
        self._name = name
        self._shapes: Shapes = {
            weight_name: tuple(weight.shape) for weight_name, weight in model.named_parameters()
        }
        self._loaded: OrderedDict[str, str] = OrderedDict()
        """Version of its files -> the name that PEFT knows it by."""
        self._count = 0
        self._active = ""

    def select(self, folder: str) -> Any:
        """Return the model with this adapter; as it is where empty. Raises PromptError."""
        key = version_of(folder) if folder else ""
        if key == self._active:
            return self._model
        if folder:
            name = self._loaded.get(key) or self._load(folder, key)
            self._loaded.move_to_end(key)
            self._model.base_model.enable_adapter_layers()
            self._model.set_adapter(name)
        else:
            self._model.base_model.disable_adapter_layers()
        self._active = key
        return self._model

    def _load(self, folder: str, key: str) -> str:
        from peft import PeftModel

        check_adapter(folder, self._shapes, self._name)
        self._count += 1
        name = f"adapter{self._count}"
        # In the model's own number format, as vLLM has adapters; PEFT would keep float32.
        options = {"adapter_name": name, "autocast_adapter_dtype": False}
        try:
            if self._loaded:
                self._model.load_adapter(folder, **options)
            else:
                self._model = PeftModel.from_pretrained(self._model, folder, **options)
        except (OSError, ValueError, KeyError, RuntimeError) as error:
            raise PromptError(f"the adapter {folder} cannot be loaded: {error}") from error
        self._model.eval()
        self._loaded[key] = name
        if len(self._loaded) > MAX_LOADED:
            _, oldest = self._loaded.popitem(last=False)
            self._model.delete_adapter(oldest)
        return name
