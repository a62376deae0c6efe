"""The compilation that a local head starts in the background, in words."""

from __future__ import annotations

import time
from typing import Any

from llmops_kernel.store.compiled_ops import USUAL_TIME, compiling_since_s, will_compile


def announcement(warm: dict[str, Any]) -> str:
    """Return what `up` prints when the head will compile; empty when it will not.

    `warm` are the `warm` settings of the cluster template.
    """
    if not warm.get("enabled") or not will_compile():
        return ""
    return (
        "DeepSpeed's CPU operations are compiled in the background"
        f" ({USUAL_TIME}); a ZeRO run that starts earlier waits for them"
    )


def compilation_state(*, now_s: float | None = None) -> str:
    """Return a sentence while operations are compiled on this machine; empty otherwise."""
    since_s = compiling_since_s()
    if since_s is None:
        return ""
    passed_s = max(0.0, (time.time() if now_s is None else now_s) - since_s)
    return f"DeepSpeed's CPU operations are being compiled for {passed_s:.0f} s ({USUAL_TIME})"
