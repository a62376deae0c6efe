"""The protocol of an engine, and the engines by name: requests go in, answers come out."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from importlib import import_module
from typing import Any, Final, Literal, Protocol

from llmops_kernel.errors import ModelError
from llmops_kernel.hardware.precision import AUTO, DeviceFacts, Precision, choose_dtype

Message = dict[str, str]
"""`{"role": "user", "content": "..."}`"""
Prompt = str | list[Message]
"""A text that is continued as it is, or a chat that the model's chat template is applied to."""
Finish = Literal["stop", "length", "error"]
TEXT_CLASS: Final = "AutoModelForCausalLM"
"""The class of Transformers that loads a model that writes text."""


@dataclass(frozen=True, kw_only=True)
class EngineSpec:
    """The model of an engine, and its settings. Jobs with an equal spec share one engine."""

    type: str
    """A name of the registry: `vllm`, `transformers`."""
    model: str
    """A folder that the engine's node sees, or a hub id."""
    version: str = ""
    """Another one when the model's files are written anew; empty where that is unknown."""
    revision: str | None = None
    dtype: str = "auto"
    """`auto`, or a number format of torch: `bfloat16`. See `resolved`."""
    trust_remote_code: bool = False
    tensor_parallel: int = 1
    max_model_len: int | None = None
    """In tokens; None: what the model was made for, at most 4,096."""
    batch_size: int = 64
    """Sequences worked on at once."""
    gpu_memory: float = 0.9
    """Share of a GPU's memory, 0..1."""
    num_gpus: float = 0.0
    """GPUs that Ray reserves for one replica; 0 runs on CPUs."""
    max_lora_rank: int = 0
    """Largest rank of the adapters that the engine can load; 0: none."""
    embeds: bool = False
    """True if the engine returns vectors instead of text: vLLM decides it when it loads."""
    auto_class: str = TEXT_CLASS
    """The class of Transformers that loads the model."""
    head: dict[str, Any] = field(default_factory=dict)
    """What an adapter's head needs of its base: `num_labels` and others of a model's config."""
    pooling: str = ""
    """How vLLM makes a vector of a text's tokens; empty: their mean. See `Encoder`."""
    is_normalized: bool = True
    """Whether vLLM makes vectors of length 1."""
    options: dict[str, Any] = field(default_factory=dict)
    """Further arguments, as vLLM's `EngineArgs` names them."""

    @property
    def key(self) -> str:
        """Return twelve hex digits that are equal for equal specs."""
        text = json.dumps(asdict(self), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    def resolved(self, device: Callable[[], DeviceFacts]) -> tuple[EngineSpec, Precision]:
        """Return the spec with the number format that suits the engine's device, and the choice.

        An engine calls it when it loads: replicas may be on nodes with other devices. `device`
        looks at this node's, and is called where nothing else decides.
        """
        if self.dtype != AUTO:
            return self, Precision(self.dtype)
        precision = choose_dtype(self.dtype, device(), trains=False)
        return replace(self, dtype=precision.dtype), precision


@dataclass(frozen=True, kw_only=True)
class Encoder:
    """How a model that was trained for vectors makes one of a text, as sentence-transformers does.

    `max_length`: in tokens; longer texts are cut. None: what the tokenizer says.
    """

    pooling: Literal["last", "mean", "cls"] = "mean"
    is_normalized: bool = False
    max_length: int | None = None
    is_lower_case: bool = False
    prefix: str = ""
    """Put before each text."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """The settings that many requests have in common."""

    task: Literal["generate", "classify", "json", "logprob", "embed", "value"] = "generate"
    choices: tuple[str, ...] = ()
    """Of the task `classify`; empty: the labels of the model's head, in `labels`."""
    labels: tuple[str, ...] = ()
    is_multi_label: bool = False
    """Any number of the labels are true."""
    encoder: Encoder | None = None
    """Of the task `embed`; None: the mean of the last layer, of length 1."""
    json_schema: str = ""
    """The schema of the task `json`, as JSON."""
    top_logprobs: int = 0
    """For `logprob`: how many most probable tokens are returned at each token of the target."""
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int | None = None
    max_tokens: int = 256
    stop: tuple[str, ...] = ()
    seed: int = 0
    adapter: str = ""
    """Folder of a LoRA adapter on the engine's node; empty: the model as it is."""
    adapter_version: str = ""
    """Version of an adapter behind a URL; another one when its files are written anew."""
    stream: bool = False
    """True if `step` also returns answers that are not finished."""


@dataclass(slots=True)
class Request:
    """A row for the engine."""

    id: int
    """Unique among the unfinished requests of an engine."""
    prompt: Prompt
    target: str = ""
    """The text whose probability the task `logprob` returns; empty: of the prompt's own tokens."""
    row: int = 0
    """Number of the row: its answer's random choices are made from this and the job's seed."""
    call: int = 0
    """The same for all rows that arrive in one call. Rows of two calls are not computed together
    where roundings depend on what else is in the batch: calls arrive in any order."""


@dataclass(slots=True)
class Answer:
    """The result of one request. An unknown number is None."""

    id: int
    text: str = ""
    prompt_tokens: int = 0
    output_tokens: int = 0
    finish: Finish = "stop"
    """`length`: the answer was cut; of the task `embed` the text itself."""
    error: str = ""
    """Reason why this request has no answer; the others are not affected."""
    logprob: float | None = None
    """Natural logarithm of the probability of the output tokens (task `logprob`: of the target's),
    summed; of the whole distribution, without temperature."""
    scores: dict[str, float] | None = None
    """Task `classify`: choice -> probability 0..1 among the choices; they sum to 1, unless any
    number of them may be true."""
    embedding: list[float] | None = None
    value: float | None = None
    """Task `value`: the number of the model's head."""
    target_tokens: list[int] | None = None
    """With `Job.top_logprobs`: the tokens of the target."""
    top_tokens: list[list[int]] | None = None
    """The most probable tokens at each of `target_tokens`, the most probable one first."""
    top_logprobs: list[list[float]] | None = None
    """Natural logarithms of their probabilities; of the whole distribution, without temperature."""
    is_final: bool = True
    """False for a part of a streamed answer; `text` is all that is there so far."""


@dataclass(frozen=True, kw_only=True)
class EngineStats:
    """The load of an engine; unknown is None."""

    running: int = 0
    waiting: int = 0
    kv_cache: float | None = None
    """Share of the KV cache that is in use, 0..1."""
    prefix_hits: float | None = None
    """Share of prompt tokens that the prefix cache had, 0..1."""


class Engine(Protocol):
    """A loaded model. Not thread-safe: one thread calls all methods but `stats`."""

    def add(self, request: Request, job: Job) -> None:
        """Queue a request. What is wrong with it comes back as its answer's `error`."""

    def step(self) -> Sequence[Answer]:
        """Work for a moment; return the answers that are finished, in any order.

        Raises only when the engine itself is broken.
        """

    def cancel(self, ids: Sequence[int]) -> None:
        """Forget unfinished requests; they get no answer."""

    @property
    def unfinished(self) -> int:
        """Return requests that were added and have no answer yet."""

    def stats(self) -> EngineStats:
        """Return the engine's load; may be called from another thread."""

    def close(self) -> None:
        """Free memory and end processes."""


# --- The engines by name. An engine's class gets an EngineSpec and is an `Engine` ---


_BUILT_IN = {
    "vllm": "llmops_kernel.score.engines.vllm.engine:VllmEngine",
    "transformers": "llmops_kernel.score.engines.transformers.engine:TransformersEngine",
}
NAMES = tuple(_BUILT_IN)


def load_engine(spec: EngineSpec) -> Engine:
    """Load a model. A type of `module:Class` is an engine of the user's. Raises ModelError."""
    path = _BUILT_IN.get(spec.type, spec.type)
    module, _, name = path.partition(":")
    if not name:
        raise ModelError(
            f"There is no engine {spec.type!r}.",
            remedy=f"use {', '.join(NAMES)}, auto, or a class of yours as module:Class",
        )
    engine: Engine = getattr(import_module(module), name)(spec)
    return engine
