"""Work with data for a request: a few processes at once, none for an answer that nobody awaits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, TypeVar

from llmops_kernel.server.base import RequestError
from llmops_kernel.server.configs.target import ConfigHandler
from llmops_kernel.server.wire.configs import ConfigTarget
from llmops_kernel.services.data.process import Stop

TIMEOUT_S = 60.0
_AT_ONCE: Final = 2
"""Processes with a tokenizer, of all users of this server. Other requests wait."""
_GATE = "llmops_data_gate"
_NEWEST = "llmops_data_newest"
T = TypeVar("T")
Key = tuple[str, str]


class InspectionHandler(ConfigHandler):
    """Gives work a `Stop` that is set when the client goes away or asks anew about the config."""

    _stop: Stop | None = None
    _stopped: asyncio.Event | None = None

    def on_connection_close(self) -> None:
        super().on_connection_close()
        self._end()

    async def inspect(self, body: ConfigTarget, work: Callable[[Stop], T]) -> T:
        """Do work in its turn. Raises StoppedError, and RequestError if its turn never came."""
        self._stop, self._stopped = Stop(), asyncio.Event()
        newest: dict[Key, InspectionHandler] = self.settings.setdefault(_NEWEST, {})
        key = self._key(body)
        if key is not None:
            if key in newest:
                newest[key]._end()
            newest[key] = self
        try:
            return await self._in_turn(work)
        finally:
            if key is not None and newest.get(key) is self:
                del newest[key]

    async def _in_turn(self, work: Callable[[Stop], T]) -> T:
        gate: asyncio.Semaphore = self.settings.setdefault(_GATE, asyncio.Semaphore(_AT_ONCE))
        assert self._stop is not None
        assert self._stopped is not None
        turn = asyncio.ensure_future(gate.acquire())
        end = asyncio.ensure_future(self._stopped.wait())
        await asyncio.wait({turn, end}, return_when=asyncio.FIRST_COMPLETED)
        end.cancel()
        if self._stopped.is_set():
            if not turn.cancel():
                gate.release()
            raise RequestError("A newer request replaced this one", status=409)
        try:
            return await self.ask(work, self._stop)
        finally:
            gate.release()

    def _end(self) -> None:
        if self._stop is not None and self._stopped is not None:
            self._stopped.set()
            # It may wait for the process to end.
            asyncio.get_running_loop().run_in_executor(self.manager.own_threads, self._stop.set)

    def _key(self, body: ConfigTarget) -> Key | None:
        """Return which question about which config this is; None for a text without a file."""
        return None if body.path is None else (body.path, type(self).__name__)
