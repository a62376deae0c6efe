"""Who owns the process at the other end of a loopback connection."""

from __future__ import annotations

import os
import socket
import struct
from pathlib import Path
from typing import Final

_TABLE: Final = Path("/proc/net/tcp")
_LOCAL, _REMOTE, _UID, _INODE = 1, 2, 7, 9
Address = tuple[str, int]


def is_ours(peer: Address, own: Address) -> bool:
    """Return whether the process that connected from `peer` to `own` belongs to this user.

    A listener on the loopback device is open to every user of the host. False if the owner is
    unknown.
    """
    row = _row(peer, own)
    return row is not None and int(row[_UID]) == os.getuid()


def is_there(peer: Address, own: Address) -> bool:
    """Return False once the other process has closed its socket, not only its sending side."""
    row = _row(peer, own)
    return row is not None and row[_INODE] != "0"


def _row(peer: Address, own: Address) -> list[str] | None:
    """Return the kernel's row for the socket whose own address is `peer`."""
    try:
        rows = _TABLE.read_text().splitlines()[1:]
    except OSError:
        return None
    wanted = [_spelled(peer), _spelled(own)]
    cells = (row.split() for row in rows)
    return next((row for row in cells if [row[_LOCAL], row[_REMOTE]] == wanted), None)


def _spelled(address: Address) -> str:
    """Return the address as the kernel writes it: a number in the machine's byte order."""
    (number,) = struct.unpack("=I", socket.inet_aton(address[0]))
    return f"{number:08X}:{address[1]:04X}"
