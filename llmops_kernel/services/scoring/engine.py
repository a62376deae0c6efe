"""Makes vLLM's environment on this machine where a score run may use it."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from typing import Any

from llmops_kernel import score_env
from llmops_kernel.providers.protocol import ClusterProvider, Progress
from llmops_kernel.services.score_env import make

_MAY_BE_VLLM = ("auto", "vllm")


def ensure_engine(
    config: Mapping[str, Any], provider: ClusterProvider, *, progress: Progress | None = None
) -> None:
    """Make the environment unless it is there, is not needed, or is the worker image's matter.

    `config`: of a score run, resolved. Raises MissingDependencyError.
    """
    kind = (config.get("engine") or {}).get("type")
    if kind not in _MAY_BE_VLLM or not provider.shares_disk:
        return
    if importlib.util.find_spec("vllm") is None and not score_env.ready():
        make(progress)
