"""The settings that keep the connections of a process group on the machine that all of it is on."""

from __future__ import annotations

import socket
from contextlib import suppress

ADDRESS = "127.0.0.1"
_NAMES = ("lo", "lo0")


def settings() -> dict[str, str]:
    """Return variables that make Gloo, NCCL and TensorPipe listen on the loopback interface only.

    Without them they listen on the address of the machine's name or of its first network card.
    Empty where there is no loopback interface.
    """
    interfaces: list[tuple[int, str]] = []
    with suppress(OSError):
        interfaces = socket.if_nameindex()
    name = next((name for _, name in interfaces if name in _NAMES), None)
    if name is None:
        return {}
    # `=`: NCCL would take `lo` for the beginning of names.
    return {
        "GLOO_SOCKET_IFNAME": name,
        "TP_SOCKET_IFNAME": name,
        "NCCL_SOCKET_IFNAME": f"={name}",
    }
