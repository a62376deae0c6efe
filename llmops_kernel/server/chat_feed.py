"""Topic `chat/<id>`: the growing answers of one turn."""

from __future__ import annotations

from llmops_kernel.server.hub import Cursor, Frame, Json, frame
from llmops_kernel.server.wire.chat import ChatMessage, ChatSide, ChatTurn
from llmops_kernel.services.backend import Backend
from llmops_kernel.services.chat import Turn
from llmops_kernel.services.runs import Run
from llmops_kernel.store.record import RunRecord


class ChatFeed:
    """The whole turn whenever it has changed: a few kilobytes."""

    period_s = 0.1

    def __init__(self, turn_id: str, *, backend: Backend) -> None:
        self._turn = turn_of(backend, backend.store.record(turn_id))
        self._shown: ChatTurn | None = None
        self._version = 0

    def poll(self) -> None:
        now = shown(self._turn)
        if now != self._shown:
            self._shown = now
            self._version += 1

    def news(self, cursor: Cursor, have: Json) -> tuple[list[Frame], Cursor]:
        if self._shown is None or cursor == self._version:
            return [], cursor
        return [frame("chat", self._shown)], self._version

    def close(self) -> None:
        self._turn.run.close()


def turn_of(backend: Backend, record: RunRecord) -> Turn:
    """Return a turn. Raises RunStateError for another kind of run."""
    return Turn(Run(backend, record.run_id), "")


def shown(turn: Turn) -> ChatTurn:
    """Return the turn as it is now."""
    is_over = turn.is_over
    message, remedy = turn.failure
    return ChatTurn(
        id=turn.id,
        run_id=turn.config.run,
        state=turn.state,
        is_over=is_over,
        line="" if is_over else turn.line,
        message=message,
        remedy=remedy,
        warnings=turn.warnings,
        sides=_sides(turn),
    )


def _sides(turn: Turn) -> list[ChatSide]:
    fields = set(ChatSide.model_fields) - {"name", "model", "messages"}
    return [
        ChatSide(
            name=side.name,
            model=side.model.id,
            messages=[ChatMessage(**message.model_dump()) for message in side.messages],
            **{name: getattr(answer, name) for name in fields},
        )
        for side, answer in zip(turn.config.models, turn.answers, strict=True)
    ]
