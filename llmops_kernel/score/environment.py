"""The place of vLLM's own environment on this node."""

from __future__ import annotations

from pathlib import Path

from llmops_kernel import score_env


def python_of(cache_root: str) -> str:
    """Return its interpreter; empty if there is none. `cache_root`: the client's cache folder."""
    for root in (Path(cache_root), None) if cache_root else (None,):
        if score_env.ready(root):
            return str(score_env.python(root))
    return ""
