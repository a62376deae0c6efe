"""Submits a turn of a chat: what each model is asked, with its own earlier answers."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from llmops_kernel.config.models.score import (
    ChatConfig,
    ChatModel,
    EngineSettings,
    Message,
    ModelName,
    Sampling,
    ScoredModel,
)
from llmops_kernel.errors import ConfigError, RunStateError
from llmops_kernel.jobs.submit import Submission
from llmops_kernel.kinds.registry import kind_named, view_of
from llmops_kernel.metrics.events import RunState
from llmops_kernel.providers.protocol import Progress
from llmops_kernel.providers.registry import shares_disk
from llmops_kernel.services.backend import Backend
from llmops_kernel.services.clusters import find
from llmops_kernel.services.runs import Run
from llmops_kernel.services.scoring.model import TrainedModel, trained_model
from llmops_kernel.services.submission import submit
from llmops_kernel.store.files import find as find_file
from llmops_kernel.store.journal.score_view import ChatAnswer, ChatView
from llmops_kernel.store.record import RunRecord
from llmops_kernel.store.store import RunStore
from llmops_kernel.views.snapshot import waiting_text

KIND = "chat"
Only = Literal["", "base", "tuned"]


@dataclass(frozen=True, kw_only=True)
class ChatSettings:
    """How a chat asks; the defaults are those of every door."""

    system: str = ""
    """Instructions for the models, before the conversation."""
    max_tokens: int = 256
    temperature: float = 0.0
    only: Only = ""
    """Ask one of the two models."""
    engine: str = "auto"
    template: bool = True
    """Apply the model's chat template."""
    cluster: str = ""
    """Default: the cluster of the run."""


def ask(
    backend: Backend,
    run: str,
    prompt: str,
    *,
    settings: ChatSettings,
    after: str = "",
    progress: Progress | None = None,
) -> Run:
    """Submit a turn and return its run; `after` is the turn that it continues.

    Raises RunNotFoundError, RunStateError for a run without a model, ConfigError for settings that
    are wrong, and ClusterError when the cluster cannot be used.
    """
    store = backend.store
    config = turn_config(store, run, prompt, settings=settings, after=after)
    cluster = find(settings.cluster or store.record(config.run).cluster, backend=backend)
    kind, workspace = kind_named(KIND), _workspace(store)
    turn = Submission(kind=kind, config=config, workspace=workspace, hidden=True)
    record = submit(cluster, turn, progress=progress)
    return Run(backend, record.run_id, provider=cluster.provider)


def turn_config(
    store: RunStore, run: str, prompt: str, *, settings: ChatSettings, after: str = ""
) -> ChatConfig:
    """Return what a turn asks. Raises RunNotFoundError, RunStateError, ConfigError."""
    if not prompt.strip():
        raise ConfigError("The prompt is empty.", remedy="write what the models are asked")
    trained = trained_model(run, store)
    _check_output(store.record(trained.run_id), trained)
    earlier = conversation(store, after) if after else {}
    models = [
        ChatModel(
            name=name,
            model=model,
            messages=(
                *(earlier.get(name) or _system(settings)),
                Message(role="user", content=prompt),
            ),
        )
        for name, model in _models(store.record(trained.run_id), trained)
        if settings.only in ("", name)
    ]
    try:
        return ChatConfig(
            run=trained.run_id,
            after=after,
            models=tuple(models),
            template=settings.template,
            sampling=Sampling(max_tokens=settings.max_tokens, temperature=settings.temperature),
            engine=EngineSettings(type=settings.engine),
        )
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise ConfigError(f"{where}: {first['msg']}", remedy="correct it and ask again") from None


def conversation(store: RunStore, turn: str) -> dict[str, tuple[Message, ...]]:
    """Return the messages up to the end of a turn, by model.

    A prompt without an answer is left out: chat templates want them in turn.
    """
    config, view = config_of(store.record(turn)), view_of(store, turn)
    answers = view.answers if isinstance(view, ChatView) else {}
    found: dict[str, tuple[Message, ...]] = {}
    for one in config.models:
        text = answers[one.name].text if one.name in answers else ""
        reply = Message(role="assistant", content=text)
        found[one.name] = (*one.messages, reply) if text else one.messages[:-1]
    return found


def config_of(record: RunRecord) -> ChatConfig:
    """Return the config of a turn. Raises RunStateError for another kind of run."""
    if not is_turn(record):
        raise RunStateError(
            f"Run {record.run_id} is no turn of a chat.",
            remedy="start a new conversation, without an earlier turn",
        )
    return ChatConfig.model_validate(record.config)


def is_turn(record: RunRecord) -> bool:
    return issubclass(kind_named(record.kind).view, ChatView)


def newest_turn(store: RunStore, run_id: str) -> RunRecord | None:
    """Return the newest turn of a chat with a run; None if there was none."""
    for turn in store.run_ids(hidden=True):
        if turn.startswith(f"{KIND}-"):
            record = store.record(turn)
            if is_turn(record) and record.config.get("run") == run_id:
                return record
    return None


def _models(record: RunRecord, trained: TrainedModel) -> Iterator[tuple[ModelName, ScoredModel]]:
    folder = Path(record.workspace_root) if record.workspace_root else Path.cwd()
    base = _located(trained.base, folder)
    trusts = _trusts_remote_code(record)
    if base:
        model = ScoredModel(id=base, revision=trained.revision, trust_remote_code=trusts)
        yield "base", model
    if trained.adapter:
        yield "tuned", model.model_copy(update={"adapter": trained.adapter})
    else:
        yield "tuned", ScoredModel(id=trained.model, trust_remote_code=trusts)


def _located(model: str, workspace: Path) -> str:
    """Return a folder of the run's workspace in full: a turn has no workspace of its own."""
    found = find_file(model, (workspace,)) if model and "://" not in model else None
    return model if found is None else str(found)


def _trusts_remote_code(record: RunRecord) -> bool:
    model = record.config.get("model")
    return bool(isinstance(model, dict) and model.get("trust_remote_code"))


def _check_output(record: RunRecord, trained: TrainedModel) -> None:
    """Raise RunStateError if the output is gone, or an adapter's base is not known."""
    path = trained.adapter or trained.model
    if trained.adapter and not trained.base:
        raise RunStateError(
            f"The base model of run {trained.run_id} is not known.",
            remedy="name it in a score config: model.id, and the adapter in model.adapter",
        )
    if "://" not in path and shares_disk(record.provider) and not Path(path).exists():
        raise RunStateError(
            f"The output of run {trained.run_id} is gone: {path}",
            remedy="train it again: `llmops resubmit " + trained.run_id + "`",
        )


def _system(settings: ChatSettings) -> tuple[Message, ...]:
    if not settings.system.strip():
        return ()
    return (Message(role="system", content=settings.system),)


def _workspace(store: RunStore) -> Path:
    """Return an empty folder: all turns then share one runtime environment on the cluster."""
    folder = store.root / "chat-workspace"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


# --- A conversation with the models of a run: each turn continues the one before it ---


POLL_S = 0.05
_STOP_S = 20.0
LABELS = {"base": "base", "tuned": "fine-tuned"}
"""What screens call the models."""


class Turn:
    """One prompt and its growing answers."""

    def __init__(self, run: Run, prompt: str) -> None:
        self.run, self.prompt = run, prompt
        self.config = config_of(run.record)
        self.names = tuple(one.name for one in self.config.models)

    @property
    def id(self) -> str:
        return self.run.id

    @property
    def view(self) -> ChatView:
        view = self.run.view
        assert isinstance(view, ChatView)
        return view

    @property
    def answers(self) -> tuple[ChatAnswer, ...]:
        """The answers so far, in the order of the models; one that has not begun is empty."""
        known = self.view.answers
        return tuple(known.get(name) or ChatAnswer(model=name) for name in self.names)

    @property
    def is_over(self) -> bool:
        return self.run.has_ended

    @property
    def state(self) -> RunState:
        return self.run.state

    @property
    def line(self) -> str:
        """What the turn does while no model has answered; empty after that."""
        return "" if any(one.text for one in self.answers) else waiting_text(self.view)

    @property
    def warnings(self) -> list[str]:
        return [warning.message for warning in self.view.warnings]

    def follow(self) -> Iterator[tuple[ChatAnswer, ...]]:
        """Yield the answers when they have changed, until the end."""
        shown: object = None
        while True:
            over = self.is_over
            now = (self.answers, self.line)
            if now != shown or over:
                shown = now
                yield now[0]
            if over:
                return
            time.sleep(POLL_S)

    def stop(self) -> None:
        """Stop the answers and wait a moment for the end; what is there stays."""
        self.run.stop()
        until_s = time.monotonic() + _STOP_S
        while not self.is_over and time.monotonic() < until_s:
            time.sleep(POLL_S)

    @property
    def failure(self) -> tuple[str, str]:
        """Why the turn failed, and what to do; empty where an answer has the error."""
        view = self.view
        if view.state != "FAILED" or any(answer.error for answer in self.answers):
            return "", ""
        return view.message, view.remedy


class Conversation:
    """Keeps the newest turn; without one the next turn is the first."""

    def __init__(
        self, backend: Backend, run: str, *, settings: ChatSettings, after: str = ""
    ) -> None:
        """Raises RunNotFoundError, and RunStateError for a run without a model."""
        self.model = trained_model(run, backend.store)
        self.run_id = self.model.run_id
        self._backend, self._settings, self._after = backend, settings, after

    def ask(self, prompt: str, *, progress: Progress | None = None) -> Turn:
        """Submit the next turn. Raises ConfigError, ClusterError."""
        run = ask(
            self._backend,
            self.run_id,
            prompt,
            settings=self._settings,
            after=self._after,
            progress=progress,
        )
        self._after = run.id
        return Turn(run, prompt)

    def reset(self) -> None:
        """Forget the conversation."""
        self._after = ""
