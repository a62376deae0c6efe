"""The engines of a turn of a chat: which model is in which, their loading, growing answers."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from llmops_kernel.config.models.score import (
    ChatConfig,
    ChatModel,
    PromptSettings,
    ScoreConfig,
    ScoreInput,
)
from llmops_kernel.driver.engines import standing
from llmops_kernel.errors import LLMOpsError
from llmops_kernel.metrics.events import AnswerEvent
from llmops_kernel.score.engine_replicas import (
    Deployment,
    forget,
    free_gpus,
    get_replica,
    give_up,
    load_failure,
    standing_replica,
)
from llmops_kernel.score.engines.protocol import Answer, Job, Prompt
from llmops_kernel.score.setup import adapter_folder, engine_choice, job_of, python_of
from llmops_kernel.store.record import RunSpec

_POLL_S = 0.1
_LEAVE_S = 5.0
_MEMORY_SHARE = 1.25
"""Memory of a loaded model, as a multiple of its weights' files."""
_WEIGHTS = ("*.safetensors", "*.bin")


@dataclass(frozen=True, kw_only=True)
class ModelTurn:
    """A model of the turn with its engine, job and prompt."""

    name: str
    deployment: Deployment
    engine_label: str
    """The engine's name for the screen."""
    job: Job
    prompt: Prompt


def model_turns(spec: RunSpec, config: ChatConfig, *, num_gpus: float) -> list[ModelTurn]:
    """Return the prompt of each model, and its engine. Raises DataError."""
    turns = []
    python = python_of(spec.cache_root)
    for model in config.models:
        # A turn is a scoring of one row: it then shares its engine with score runs.
        row = ScoreConfig(
            model=model.model,
            input=ScoreInput(path="-"),
            prompt=PromptSettings(column="prompt"),
            sampling=config.sampling,
            engine=config.engine,
        )
        choice = engine_choice(spec, row, num_gpus=num_gpus, num_nodes=1, score_python=python)
        job = job_of(row, adapter=adapter_folder(spec, model.model.adapter))
        turn = ModelTurn(
            name=model.name,
            deployment=choice.deployment,
            engine_label=choice.label,
            job=replace(job, stream=True),
            prompt=_prompt(model, template=config.template),
        )
        turns.append(turn)
    return turns


def _prompt(model: ChatModel, *, template: bool) -> Prompt:
    if template:
        return [message.model_dump() for message in model.messages]
    return "".join(message.content for message in model.messages)


def by_engine(models: Sequence[ModelTurn]) -> list[list[ModelTurn]]:
    """Return the models that share an engine together: a base model and its adapter do."""
    groups: dict[str, list[ModelTurn]] = {}
    for model in models:
        groups.setdefault(model.deployment.name(0), []).append(model)
    return list(groups.values())


class Engines:
    """Loads engines for a turn."""

    def __init__(self, *, stopped: Callable[[], bool], warn: Callable[[str, str], None]) -> None:
        self._stopped, self._warn = stopped, warn
        self._standing = standing()
        self._caller = uuid.uuid4().hex

    def is_standing(self, deployment: Deployment) -> bool:
        return deployment.name(0) in self._standing

    def fit(self, deployments: Sequence[Deployment]) -> bool:
        """Return whether all can be loaded at once, after idle engines of others have left."""
        import ray

        missing = [deployment for deployment in deployments if not self.is_standing(deployment)]
        gpus = sum(deployment.spec.num_gpus for deployment in missing)
        if gpus:
            if ray.available_resources().get("GPU", 0) < gpus:
                self._free_gpus(gpus, keep={deployment.name(0) for deployment in deployments})
            return bool(ray.available_resources().get("GPU", 0) >= gpus)
        if len(missing) < 2 or len(ray.nodes()) > 1:
            return True
        return _memory_for([deployment.spec.model for deployment in missing])

    def _free_gpus(self, gpus: float, *, keep: set[str]) -> None:
        import ray

        num_leaving = free_gpus(keep)
        until_s = time.monotonic() + _LEAVE_S
        while num_leaving and time.monotonic() < until_s:
            if ray.available_resources().get("GPU", 0) >= gpus:
                return
            time.sleep(_POLL_S)

    def load(self, deployment: Deployment) -> Any:
        """Return the loaded engine's actor; None when the turn was stopped meanwhile.

        Raises LLMOpsError.
        """
        import ray

        for last in (False, True):
            is_new = standing_replica(deployment, 0) is None
            engine = get_replica(deployment, 0)
            try:
                if self._is_loaded(engine, deployment):
                    return engine
                give_up([engine] if is_new else [], caller=self._caller)
                return None
            except ray.exceptions.RayActorError as error:
                # It may have left for want of work just when it was found.
                if last:
                    forget(deployment, 0)
                    raise load_failure(deployment, error) from error
                time.sleep(_POLL_S)
            except Exception as error:
                forget(deployment, 0)
                raise load_failure(deployment, error) from error
        return None

    def _is_loaded(self, engine: Any, deployment: Deployment) -> bool:
        import ray

        loading = engine.load.remote(
            keep_s=deployment.keep_s, run=deployment.run, caller=self._caller
        )
        begun_s, warned = time.monotonic(), False
        while not ray.wait([loading], timeout=_POLL_S)[0]:
            if self._stopped():
                return False
            if not warned and time.monotonic() - begun_s > _LEAVE_S:
                warned = True
                self._warn_of_missing_gpus(deployment)
        ray.get(loading)
        return True

    def _warn_of_missing_gpus(self, deployment: Deployment) -> None:
        import ray

        num_gpus = deployment.spec.num_gpus
        free = ray.available_resources().get("GPU", 0)
        if num_gpus and not self.is_standing(deployment) and free < num_gpus:
            self._warn(
                f"The engine is waiting for {num_gpus:g} GPUs; {free:g} are free.",
                "another run uses the rest; `llmops status` shows which",
            )

    def leave(self, engine: Any) -> None:
        """Ask an engine to leave: the next one needs its memory."""
        if not _leaves(engine):
            self._warn("Another job uses the first engine, so it stays loaded.", "")
        time.sleep(_POLL_S)


def _leaves(actor: Any) -> bool:
    import ray

    with suppress(ray.exceptions.RayError, LLMOpsError):
        return bool(ray.get(actor.leave.remote(), timeout=_LEAVE_S))
    return False


def _memory_for(models: Sequence[str]) -> bool:
    """Return False if the weights of the folders need more memory than this node has free."""
    import psutil

    folders = [Path(model) for model in models if Path(model).is_dir()]
    files = [file for folder in folders for kind in _WEIGHTS for file in folder.glob(kind)]
    need = _MEMORY_SHARE * sum(file.stat().st_size for file in files)
    return bool(need < psutil.virtual_memory().available)


# --- The growing answers of models, journaled a few times a second ---


EVERY_S = 0.1
"""Between two events of one answer: fluent to read, and a small journal."""
_WAIT_S = 0.05
_CANCEL_S = 2.0

Emit = Callable[[AnswerEvent], None]


class AnswerStream:
    """The answer of one model: keeps the newest part and journals what was added."""

    def __init__(self, model: str, emit: Emit) -> None:
        self.model = model
        self.answer = Answer(0)
        self._emit = emit
        self._sent = ""
        self._sent_s = float("-inf")
        self._first: tuple[float, int] | None = None
        """When the first part came, and how many tokens it had."""
        self._last_s = 0.0
        self.is_over = self.was_cancelled = False
        self.error: LLMOpsError | None = None

    def take(self, answer: Answer) -> None:
        """Keep a newer part; an answer without tokens has not begun."""
        self.answer = answer
        self._last_s = time.monotonic()
        if self._first is None and answer.output_tokens:
            self._first = (self._last_s, answer.output_tokens)

    def tick(self) -> None:
        """Journal what was added, unless the last event is too recent."""
        now_s = time.monotonic()
        if not self.is_over and self.answer.text != self._sent and now_s - self._sent_s >= EVERY_S:
            self._sent_s = now_s
            self._write()

    def end(self, error: LLMOpsError | None = None, *, cancelled: bool = False) -> None:
        """Journal the end, once."""
        if self.is_over:
            return
        self.is_over, self.error, self.was_cancelled = True, error, cancelled
        if error is None and self.answer.error:
            self.error = LLMOpsError(self.answer.error)
        failed = self.error is not None
        self._write(finish="error" if failed else "cancelled" if cancelled else self.answer.finish)

    def _write(self, finish: str = "") -> None:
        text = self.answer.text
        start = len(self._sent) if text.startswith(self._sent) else _common(self._sent, text)
        event = AnswerEvent.model_validate(
            {
                "model": self.model,
                "start": start,
                "text": text[start:],
                "output_tokens": self.answer.output_tokens,
                "prompt_tokens": self.answer.prompt_tokens or None,
                "is_final": self.is_over,
                "finish": finish,
                "error": self.error.message if self.error else "",
                "remedy": self.error.remedy if self.error else "",
                "tokens_per_second": self._rate(),
            }
        )
        self._emit(event)
        self._sent = text

    def _rate(self) -> float | None:
        if self._first is None:
            return None
        seconds, tokens = self._last_s - self._first[0], self.answer.output_tokens - self._first[1]
        return tokens / seconds if seconds > 0 and tokens > 0 else None


def _common(left: str, right: str) -> int:
    pairs = zip(left, right, strict=False)
    return next((n for n, (a, b) in enumerate(pairs) if a != b), min(len(left), len(right)))


class AnswerReader:
    """Reads the streams of engines until all have ended or the turn is stopped."""

    def __init__(self, *, key: str, stopped: Callable[[], bool], begun: Callable[[], None]) -> None:
        """Call `begun` when the first part of any answer has come."""
        self._key, self._stopped, self._begun = key, stopped, begun
        self._open: dict[Any, tuple[AnswerStream, Any, str]] = {}
        """Ray's stream of answers -> ours, the engine's actor, and the name of the call."""
        self._has_begun = False

    def start(self, stream: AnswerStream, engine: Any, job: Job, prompt: Prompt) -> None:
        key = f"{self._key}/{stream.model}"
        call = engine.stream.options(num_returns="streaming").remote(job, prompt, key=key)
        self._open[call] = (stream, engine, key)

    def poll(self) -> bool:
        """Read what has come; return False when nothing is left to read."""
        import ray

        if not self._open:
            return False
        if self._stopped():
            self._cancel()
            return False
        ready, _ = ray.wait(list(self._open), num_returns=1, timeout=_WAIT_S)
        for call in ready:
            self._read(call)
        for stream, _, _ in self._open.values():
            stream.tick()
        return True

    def _read(self, call: Any) -> None:
        import ray

        stream = self._open[call][0]
        try:
            answer: Answer = ray.get(next(call))
        except StopIteration:
            del self._open[call]
            stream.end()
            return
        except Exception as error:
            del self._open[call]
            stream.end(_loss_error(error))
            return
        stream.take(answer)
        if not self._has_begun and (answer.output_tokens or answer.error):
            self._has_begun = True
            self._begun()
        if answer.is_final:
            del self._open[call]
            stream.end()

    def _cancel(self) -> None:
        """End the calls in the engines: they would go on to the longest answer."""
        import ray

        calls = [engine.cancel.remote(key) for _, engine, key in self._open.values()]
        # A message that is not sent before this process ends would be lost.
        ray.wait(calls, num_returns=len(calls), timeout=_CANCEL_S)
        end_all([stream for stream, _, _ in self._open.values()], cancelled=True)
        self._open.clear()


def end_all(
    streams: Sequence[AnswerStream], error: LLMOpsError | None = None, *, cancelled: bool = False
) -> None:
    for stream in streams:
        stream.end(error, cancelled=cancelled)


def _loss_error(error: Exception) -> LLMOpsError:
    import ray

    cause = getattr(error, "cause", None)
    if isinstance(cause, LLMOpsError):
        return cause
    if isinstance(error, ray.exceptions.RayActorError):
        return LLMOpsError(
            "The engine's process died while it answered.",
            remedy="ask again: Ray restarts it; if it dies again, memory probably runs out",
        )
    last = (str(error).strip().splitlines() or [""])[-1]
    return LLMOpsError(
        f"The engine failed: {type(error).__name__}: {last}", remedy="ask again, or `llmops logs`"
    )
