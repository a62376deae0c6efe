"""The one websocket of a browser tab: it subscribes to topics and gets numbered messages."""

from __future__ import annotations

import asyncio
import json
import logging
import struct
from typing import Any

from jupyter_server.auth.decorator import ws_authenticated
from jupyter_server.base.handlers import JupyterHandler
from jupyter_server.base.websocket import WebSocketMixin
from pydantic import BaseModel, ConfigDict, ValidationError
from tornado.web import HTTPError
from tornado.websocket import WebSocketClosedError, WebSocketHandler

from llmops_kernel.server.base import AUTH_RESOURCE
from llmops_kernel.server.feeds import Frame, Json
from llmops_kernel.server.manager import MANAGER_KEY, Manager

MAX_MESSAGE_BYTES = 64 * 1024
MAX_TOPICS = 200
_ALIGNMENT = 4
_LOG = logging.getLogger(__name__)


class Ask(BaseModel):
    """What a page may say."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    op: str
    topic: str = ""
    have: dict[str, Any] = {}


class LiveHandler(WebSocketMixin, WebSocketHandler, JupyterHandler):
    """Says nothing by itself; a message that it does not understand is answered, not fatal."""

    auth_resource = AUTH_RESOURCE

    @property
    def manager(self) -> Manager:
        manager: Manager = self.settings[MANAGER_KEY]
        return manager

    @property
    def max_message_size(self) -> int:
        return MAX_MESSAGE_BYTES

    def set_default_headers(self) -> None:
        """A websocket's answer carries none of Jupyter's."""

    def get_compression_options(self) -> None:
        """None: figures hardly shrink, and each connection would hold a compressor."""

    @ws_authenticated
    async def get(self, *args: Any, **kwargs: Any) -> None:
        # ws_authenticated looks at who it is, not at what they may do.
        user = self.current_user
        if user is None:
            raise HTTPError(403)
        allowed = self.authorizer.is_authorized(self, user, "execute", AUTH_RESOURCE)
        if not (await allowed if hasattr(allowed, "__await__") else allowed):
            raise HTTPError(403)
        await super().get(*args, **kwargs)

    def open(self, *args: Any, **kwargs: Any) -> None:
        self._seq = 0
        self._topics: set[str] = set()
        self._sending: asyncio.Future[None] | None = None
        super().open(*args, **kwargs)

    @property
    def is_ready(self) -> bool:
        return self._sending is None or self._sending.done()

    def deliver(self, topic: str, frames: list[Frame]) -> None:
        for frame in frames:
            self._seq += 1
            self._write(_packed(self._seq, topic, frame))

    def _write(self, message: bytes | str) -> None:
        try:
            self._sending = self.write_message(message, binary=isinstance(message, bytes))
        except WebSocketClosedError:
            return  # on_close follows and takes it out of the hub.
        self._sending.add_done_callback(_ignore_closed)

    def on_message(self, message: str | bytes) -> None:
        try:
            ask = Ask.model_validate_json(message)
            self._answer(ask)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            self._complain(f"{'.'.join(map(str, first['loc'])) or 'message'}: {first['msg']}")
        except KeyError:
            self._complain(f"there is no topic {ask.topic!r}", topic=ask.topic)

    def _answer(self, ask: Ask) -> None:
        if ask.op == "subscribe":
            if len(self._topics | {ask.topic}) > MAX_TOPICS:
                self._complain(f"at most {MAX_TOPICS} topics a page", topic=ask.topic)
                return
            self.manager.hub.subscribe(ask.topic, self, ask.have)
            self._topics.add(ask.topic)
        elif ask.op == "unsubscribe":
            self.manager.hub.unsubscribe(ask.topic, self)
            self._topics.discard(ask.topic)
        elif ask.op == "ping":
            self.deliver("", [Frame("pong", {})])
        else:
            self._complain(f"op must be subscribe, unsubscribe or ping, not {ask.op!r}")

    def _complain(self, message: str, *, topic: str = "") -> None:
        self.deliver(topic, [Frame("error", {"message": message, "remedy": ""})])

    def on_close(self) -> None:
        self.manager.hub.leave(self)
        super().on_close()


def _packed(seq: int, topic: str, frame: Frame) -> bytes | str:
    """JSON; with a payload: length of the JSON (uint32, little end first), JSON, payload."""
    head: Json = {"seq": seq, "topic": topic, "kind": frame.kind, "data": frame.data}
    if frame.payload is None:
        return json.dumps(head, allow_nan=False)
    text = json.dumps(head, allow_nan=False).encode()
    # Padded with blanks, so that the browser can read floats in place.
    text += b" " * (-(len(text) + _ALIGNMENT) % _ALIGNMENT)
    return struct.pack("<I", len(text)) + text + frame.payload


def _ignore_closed(future: asyncio.Future[None]) -> None:
    if not future.cancelled() and (error := future.exception()) is not None:
        _LOG.debug("a page left in the middle of a message: %r", error)


ROUTES = [(r"live", LiveHandler)]
