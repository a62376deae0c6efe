"""Routes of a chat with a run's model: its newest conversation, and the next prompt."""

from __future__ import annotations

from typing import Any

from llmops_kernel.server.base import LLMOpsHandler, protected
from llmops_kernel.server.chat_feed import shown, turn_of
from llmops_kernel.server.operations import Operations, Progress
from llmops_kernel.server.wire.chat import ChatBody, ChatHistory
from llmops_kernel.server.wire.common import OperationInfo
from llmops_kernel.services.backend import Backend
from llmops_kernel.services.chat import ChatSettings, ask, newest_turn


class ChatHandler(LLMOpsHandler):
    @protected
    async def get(self, run_id: str) -> None:
        self.reply(await self.run(history, self.manager.backend, run_id))

    @protected
    async def post(self, run_id: str) -> None:
        """Start a turn. The result has its id; topic `chat/<id>` then has the answers."""
        body, manager = self.body(ChatBody), self.manager
        started = await self.ask(start, manager.operations, manager.backend, run_id, body)
        self.reply(started, status=202)


def history(backend: Backend, ref: str) -> ChatHistory:
    """Return the newest conversation. Raises RunNotFoundError."""
    record = newest_turn(backend.store, backend.store.resolve(ref))
    if record is None:
        return ChatHistory(turn=None)
    turn = turn_of(backend, record)
    try:
        return ChatHistory(turn=shown(turn))
    finally:
        turn.run.close()


def start(operations: Operations, backend: Backend, ref: str, body: ChatBody) -> OperationInfo:
    """Submit a turn in the background. Raises RunNotFoundError at once."""
    run_id = backend.store.resolve(ref)
    settings = ChatSettings(
        system=body.system,
        max_tokens=body.max_tokens,
        temperature=body.temperature,
        only=body.only,
        engine=body.engine,
    )

    def work(report: Progress) -> dict[str, Any]:
        report("Submitting the prompt to the cluster")
        turn = ask(backend, run_id, body.prompt, settings=settings, after=body.after)
        return {"run_id": turn.id}

    return operations.start("chat", run_id, work)


ROUTES = [(r"runs/([^/]+)/chat", ChatHandler)]
