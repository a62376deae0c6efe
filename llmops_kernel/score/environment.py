"""Where vLLM's own environment is on this node."""

from __future__ import annotations

import os
from pathlib import Path

ENV_VAR = "LLMOPS_SCORE_ENV"


def python_of(cache_root: Path | None) -> str:
    """Return its interpreter; empty if there is none."""
    folder = os.environ.get(ENV_VAR)
    python = Path(folder) / "bin" / "python" if folder else None
    return str(python) if python is not None and python.exists() else ""
