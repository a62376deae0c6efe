"""The one event loop of this process's tunnels, in a thread of its own that ends with it."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")
_lock = threading.Lock()
_loops: dict[int, asyncio.AbstractEventLoop] = {}


def tunnel_loop() -> asyncio.AbstractEventLoop:
    """Return the loop, started when first needed; a forked child gets its own."""
    with _lock:
        pid = os.getpid()
        if pid not in _loops:
            loop = asyncio.new_event_loop()
            thread = threading.Thread(target=loop.run_forever, name="llmops-tunnel", daemon=True)
            thread.start()
            _loops.clear()
            _loops[pid] = loop
        return _loops[pid]


def run_in_loop(work: Coroutine[Any, Any, T], *, timeout_s: float | None = None) -> T:
    """Run the coroutine in the loop and wait for it from another thread."""
    return asyncio.run_coroutine_threadsafe(work, tunnel_loop()).result(timeout_s)
