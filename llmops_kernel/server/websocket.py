"""The one websocket of a browser tab: it subscribes to topics and gets numbered messages."""

from __future__ import annotations

import asyncio
import json
import logging
import reprlib
import struct
from typing import Any

from jupyter_server.auth.decorator import ws_authenticated
from jupyter_server.base.handlers import JupyterHandler
from jupyter_server.base.websocket import WebSocketMixin
from pydantic import ValidationError
from tornado.web import HTTPError
from tornado.websocket import WebSocketClosedError, WebSocketHandler

from llmops_kernel.server.base import AUTH_RESOURCE
from llmops_kernel.server.hub import Frame, frame
from llmops_kernel.server.manager import MANAGER_KEY, Manager
from llmops_kernel.server.wire.live import LiveError, LiveHeader, LiveRequest, Nothing

MAX_MESSAGE_BYTES = 64 * 1024
MAX_TOPICS = 200
_ALIGNMENT = 4
_LOG = logging.getLogger(__name__)


class LiveHandler(WebSocketMixin, WebSocketHandler, JupyterHandler):
    """Sends nothing before it is asked; a request that it cannot read is answered with an error."""

    auth_resource = AUTH_RESOURCE

    @property
    def manager(self) -> Manager:
        manager: Manager = self.settings[MANAGER_KEY]
        return manager

    @property
    def max_message_size(self) -> int:
        return MAX_MESSAGE_BYTES

    def set_default_headers(self) -> None:
        """Set no headers: a websocket's answer carries none of Jupyter's."""

    def get_compression_options(self) -> None:
        """Return None: figures hardly shrink, and each connection would hold a compressor."""

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
        for message in frames:
            self._seq += 1
            self._write(_packed(self._seq, topic, message))

    def _write(self, message: bytes | str) -> None:
        try:
            self._sending = self.write_message(message, binary=isinstance(message, bytes))
        except WebSocketClosedError:
            return  # on_close follows and takes it out of the hub.
        self._sending.add_done_callback(_ignore_closed)

    def on_message(self, message: str | bytes) -> None:
        try:
            request = LiveRequest.model_validate_json(message)
            self._answer(request)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            field = ".".join(map(str, first["loc"])) or "message"
            self._complain(f"{field}: {first['msg']}, not {reprlib.repr(first['input'])}")
        except KeyError:
            self._complain(f"there is no topic {request.topic!r}", topic=request.topic)

    def _answer(self, request: LiveRequest) -> None:
        topic = request.topic
        if request.op == "subscribe":
            if len(self._topics | {topic}) > MAX_TOPICS:
                self._complain(f"at most {MAX_TOPICS} topics a page", topic=topic)
                return
            self.manager.hub.subscribe(topic, self, request.have)
            self._topics.add(topic)
        elif request.op == "unsubscribe":
            self.manager.hub.unsubscribe(topic, self)
            self._topics.discard(topic)
        else:
            self.deliver("", [frame("pong", Nothing())])

    def _complain(self, message: str, *, topic: str = "") -> None:
        self.deliver(topic, [frame("error", LiveError(message=message, remedy=""))])

    def on_close(self) -> None:
        self.manager.hub.leave(self)
        super().on_close()


def _packed(seq: int, topic: str, message: Frame) -> bytes | str:
    """Return JSON; with a payload: length of the JSON (uint32, little end first), JSON, payload."""
    header = LiveHeader(seq=seq, topic=topic, kind=message.kind, data=message.data)
    head = dict(header)
    if message.payload is None:
        return json.dumps(head, allow_nan=False)
    text = json.dumps(head, allow_nan=False).encode()
    # Padded with blanks, so that the browser can read floats in place.
    text += b" " * (-(len(text) + _ALIGNMENT) % _ALIGNMENT)
    return struct.pack("<I", len(text)) + text + message.payload


def _ignore_closed(future: asyncio.Future[None]) -> None:
    if not future.cancelled() and (error := future.exception()) is not None:
        _LOG.debug("a page left in the middle of a message: %r", error)


ROUTES = [(r"live", LiveHandler)]
