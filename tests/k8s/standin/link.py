"""A long way to the API server: `with FarLink(standin.url, round_trip_s=0.2) as url:`.

A relay of TCP connections as a subprocess. What is sent arrives half a round trip later, in both
directions and in order, however much is on its way; a new connection costs one round trip first,
as TCP's handshake does (here that of the loopback is over at once). TLS's handshake passes through
and costs what it costs.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

_ROOT = Path(__file__).parents[3]
_CHUNK_BYTES = 1 << 16
_MOST_CHUNKS = 1024
"""On their way at a time: a sender waits then, as it does for a full window."""


class FarLink:
    """Returns the address to use instead; without a round trip nothing is between."""

    def __init__(self, url: str, *, round_trip_s: float) -> None:
        self._url, self._round_trip_s = url, round_trip_s
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> str:
        if not self._round_trip_s:
            return self._url
        port = urlsplit(self._url).port
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-m", "tests.k8s.standin.link"),
                *("--port", str(port), "--round-trip", str(self._round_trip_s)),
            ],
            cwd=_ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        return f"https://127.0.0.1:{int(self._process.stdout.readline())}"

    def __exit__(self, *exc: object) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()


class _Relay:
    def __init__(self, port: int, round_trip_s: float) -> None:
        self._port, self._round_trip_s = port, round_trip_s

    async def meet(self, near: asyncio.StreamReader, answers: asyncio.StreamWriter) -> None:
        """Serve one connection."""
        try:
            far, wishes = await asyncio.open_connection("127.0.0.1", self._port)
        except OSError:
            answers.close()
            return
        await asyncio.gather(
            self._carry(near, wishes, first_s=self._round_trip_s), self._carry(far, answers)
        )

    async def _carry(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, first_s: float = 0.0
    ) -> None:
        clock = asyncio.get_running_loop().time
        begin_s = clock() + first_s
        chunks: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(_MOST_CHUNKS)

        async def take() -> None:
            data = b"-"
            while data:
                try:
                    data = await reader.read(_CHUNK_BYTES)
                except OSError:
                    data = b""
                await chunks.put((max(clock(), begin_s) + self._round_trip_s / 2, data))

        taking = asyncio.create_task(take())
        try:
            while True:
                due_s, data = await chunks.get()
                await asyncio.sleep(due_s - clock())
                if not data:
                    break
                writer.write(data)
                await writer.drain()
        except OSError:
            pass  # The other side is gone.
        finally:
            taking.cancel()
            writer.close()


async def _serve(port: int, round_trip_s: float) -> None:
    relay = _Relay(port, round_trip_s)
    server = await asyncio.start_server(relay.meet, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    # The one that started it has died when its end of the pipe is closed.
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--round-trip", type=float, required=True)
    options = parser.parse_args()
    asyncio.run(_serve(options.port, options.round_trip))


if __name__ == "__main__":
    main()
