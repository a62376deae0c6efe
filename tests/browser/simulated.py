"""Clusters that only the page is told of: the server's other messages pass."""

from __future__ import annotations

import json
import struct
import time
from typing import Any

from llmops_kernel.providers.protocol import ClusterAction, ClusterInfo
from llmops_kernel.server.wire.clusters import ClusterList, ClusterRow

_RAY_PAGE = "<h1>Ray</h1><script>document.write(location.hash)</script>"


def row(name: str, state: str = "ready", *, info: dict[str, Any] | None = None, **more: Any) -> Any:
    """A row of the list; what is given in `info` takes the place of a busy cluster's figures."""
    figures: dict[str, Any] = {}
    if state == "ready":
        figures = {
            "num_nodes": 1,
            "num_cpus": 8,
            "cpus_used": 4.5,
            "num_gpus": 2,
            "gpus_used": 1,
            "jobs_running": 1,
            "jobs_total": 12,
            "warm": "warm",
            "warm_modules": 1204,
            "created_s": time.time() - 300,
            "ray_version": "2.60.0",
        }
    reported = {"actions": dict.fromkeys(ClusterAction, ""), **figures, **(info or {})}
    cluster = ClusterInfo(name=name, provider="local", state=state, **reported)
    return ClusterRow(name=name, provider="local", info=cluster, checked_s=time.time(), **more)


class SimulatedClusters:
    """Takes the topic `clusters` of a page's websocket, and answers for each Ray Dashboard."""

    def __init__(self, page: Any, *rows: ClusterRow) -> None:
        self._rows = rows
        self._relays: list[_Relay] = []
        page.route_web_socket("**/llmops/live*", self._connect)
        page.route(
            "**/llmops/dashboard/**",
            lambda route: route.fulfill(content_type="text/html", body=_RAY_PAGE),
        )

    def report(self, *rows: ClusterRow) -> None:
        """The news of all of them, from now on."""
        self._rows = rows
        self._relays[-1].report()

    @property
    def listing(self) -> Any:
        listing = ClusterList(clusters=list(self._rows), now_s=time.time())
        return json.loads(listing.model_dump_json())

    def _connect(self, socket: Any) -> None:
        self._relays.append(_Relay(self, socket))


class _Relay:
    """Between a page and the server; numbers the messages again."""

    def __init__(self, clusters: SimulatedClusters, socket: Any) -> None:
        self._clusters, self._socket, self._seq = clusters, socket, 0
        self._server = socket.connect_to_server()
        socket.on_message(self._from_page)
        self._server.on_message(self._from_server)

    def report(self) -> None:
        self._send({"topic": "clusters", "kind": "clusters", "data": self._clusters.listing})

    def _from_page(self, message: str) -> None:
        asked = json.loads(message)
        if asked.get("topic") != "clusters":
            self._server.send(message)
        elif asked["op"] == "subscribe":
            self.report()

    def _from_server(self, message: str | bytes) -> None:
        if isinstance(message, str):
            self._send(json.loads(message))
            return
        (length,) = struct.unpack("<I", message[:4])
        header = self._numbered(json.loads(message[4 : 4 + length]))
        # The payload must begin at a multiple of 4.
        text = header + " " * (-len(header) % 4)
        self._socket.send(struct.pack("<I", len(text)) + text.encode() + message[4 + length :])

    def _send(self, message: dict[str, Any]) -> None:
        self._socket.send(self._numbered(message))

    def _numbered(self, message: dict[str, Any]) -> str:
        self._seq += 1
        return json.dumps({**message, "seq": self._seq})
