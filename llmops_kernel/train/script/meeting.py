"""The meeting point of a script's workers on one node: a port that only this machine can reach.

torch's TCPStore listens on every address of the machine. As `torchrun` does, it is started before
the script, which then connects to it: so the socket can be ours, bound to the loopback address.
"""

from __future__ import annotations

import functools
import socket
import sys
from importlib.util import find_spec
from typing import Any

from llmops_kernel.hardware import loopback

READY_ENV_VAR = "TORCHELASTIC_USE_AGENT_STORE"
"""torch's: `init_process_group` connects to MASTER_ADDR also on rank 0, and starts no store."""
_open: list[Any] = []
"""Stores and process groups: they end with this process, not when the script destroys them."""


def listen() -> socket.socket:
    """Return a listening socket of this machine; who connects early waits."""
    server = socket.socket()
    server.bind((loopback.ADDRESS, 0))
    server.listen(128)
    return server


def serve(listener: socket.socket) -> bool:
    """Start torch's store on the socket; False without torch, then the port is free again."""
    if find_spec("torch") is None:
        listener.close()
        return False
    import torch.distributed as dist

    port = listener.getsockname()[1]
    _open.append(
        dist.TCPStore(
            loopback.ADDRESS,
            port,
            is_master=True,
            wait_for_workers=False,
            master_listen_fd=listener.detach(),
        )
    )
    return True


def keep_groups() -> None:
    """Have process groups live as long as this process, also when the script destroys them.

    Else DDP's reducer has the last reference to a group of gloo: its destructor holds Python's lock
    and waits for a thread that may need the lock to free its last tensor, so the process never
    ends (pytorch/pytorch#56297). Only where torch is loaded: a cold process imports it later.
    """
    dist: Any = sys.modules.get("torch.distributed")
    if dist is None or not dist.is_available():
        return
    destroy = dist.destroy_process_group

    @functools.wraps(destroy)
    def destroy_process_group(group: Any = None) -> None:
        world = getattr(dist.distributed_c10d, "_world", None)
        _open.extend(getattr(world, "pg_map", ()))
        destroy(group)

    dist.destroy_process_group = destroy_process_group
    dist.distributed_c10d.destroy_process_group = destroy_process_group
