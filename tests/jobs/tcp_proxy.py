"""A TCP proxy that can be cut and brought back, as `kubectl port-forward` is."""

from __future__ import annotations

import contextlib
import socket
import threading
from urllib.parse import urlsplit


class TcpProxy:
    def __init__(self, target_url: str) -> None:
        parts = urlsplit(target_url)
        assert parts.hostname is not None
        assert parts.port is not None
        self._target = (parts.hostname, parts.port)
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self.port = 0
        self.num_connections = 0
        self.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        self._server = socket.create_server(("127.0.0.1", self.port), reuse_port=False)
        self.port = self._server.getsockname()[1]
        threading.Thread(target=self._accept, args=(self._server,), daemon=True).start()

    def cut(self) -> None:
        """Refuse new connections and break the open ones."""
        # `shutdown` wakes the thread inside `accept`, which would keep the port otherwise.
        with contextlib.suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        with self._lock:
            for one in self._open:
                with contextlib.suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)
            self._open.clear()

    def _accept(self, server: socket.socket) -> None:
        while True:
            try:
                client, _ = server.accept()
                upstream = socket.create_connection(self._target)
            except OSError:
                return
            self.num_connections += 1
            with self._lock:
                self._open |= {client, upstream}
            for ends in ((client, upstream), (upstream, client)):
                threading.Thread(target=self._pump, args=ends, daemon=True).start()

    def _pump(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                target.sendall(data)
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_RDWR)
