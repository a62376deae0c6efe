"""Kubernetes' channels in one websocket for port-forward: one for data, one for errors."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from websockets.asyncio.client import ClientConnection

DATA: Final = 0
ERROR: Final = 1
CLOSE: Final = 255
"""Version 5 only: the next byte names the channel that ends."""
V5: Final = "v5.channel.k8s.io"
PROTOCOLS: Final[Any] = [V5, "v4.channel.k8s.io"]
_PORT_BYTES: Final = 2


class ChannelError(OSError):
    """The pod's node could not reach the port."""


class Channels:
    """The bytes of the data channel, until it ends. Raises ChannelError."""

    def __init__(self, remote: ClientConnection) -> None:
        self._remote = remote
        # Each channel begins with the number of its port.
        self._to_skip = {DATA: _PORT_BYTES, ERROR: _PORT_BYTES}

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Yield the bytes.

        Ends with the data channel, or with a connection that was closed properly.
        """
        async for message in self._remote:
            frame = message.encode() if isinstance(message, str) else message
            if not frame:
                continue
            channel, data = frame[0], frame[1:]
            if channel == CLOSE:
                if data[:1] == bytes([DATA]):
                    return
                continue
            skipped = min(self._to_skip.get(channel, 0), len(data))
            if skipped:
                self._to_skip[channel] -= skipped
                data = data[skipped:]
            if channel == ERROR and data:
                raise ChannelError(data.decode(errors="replace").strip())
            if channel == DATA and data:
                yield data
