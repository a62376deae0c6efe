"""A conversation with the models of a run: each turn continues the one before it."""

from __future__ import annotations

import time
from collections.abc import Iterator

from llmops_kernel.metrics.events import RunState
from llmops_kernel.providers.protocol import Progress
from llmops_kernel.services.backend import Backend
from llmops_kernel.services.chat.turns import ChatSettings, ask, config_of
from llmops_kernel.services.runs import RunAccess
from llmops_kernel.services.scoring.model import trained_model
from llmops_kernel.store.journal.chat_view import ChatAnswer, ChatView
from llmops_kernel.views.snapshot import waiting_text

POLL_S = 0.05
_STOP_S = 20.0
LABELS = {"base": "base", "tuned": "fine-tuned"}
"""What screens call the models."""


class Turn:
    """One prompt and its growing answers."""

    def __init__(self, run: RunAccess, prompt: str) -> None:
        self.run, self.prompt = run, prompt
        self.config = config_of(run.record)
        self.names = tuple(one.name for one in self.config.models)

    @property
    def id(self) -> str:
        return self.run.id

    @property
    def view(self) -> ChatView:
        self.run.source.poll()
        view = self.run.source.view
        assert isinstance(view, ChatView)
        return view

    @property
    def answers(self) -> tuple[ChatAnswer, ...]:
        """The answers so far, in the order of the models; one that has not begun is empty."""
        known = self.view.answers
        return tuple(known.get(name) or ChatAnswer(model=name) for name in self.names)

    @property
    def is_over(self) -> bool:
        return self.run.is_over()

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
