"""Makes vLLM's environment on this machine where a score run may use it."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from llmops_kernel import score_env
from llmops_kernel.providers.protocol import ClusterProvider, Progress
from llmops_kernel.services.score_env import make

_LOG = logging.getLogger(__name__)


def ensure_engine(
    config: Mapping[str, Any], provider: ClusterProvider, *, progress: Progress | None = None
) -> None:
    """Make the environment where vLLM was asked for, unless it is there or comes with the image.

    It takes minutes and 4 GB, so `auto` does not make it: it says that Transformers answers.

    `config`: of a score run, resolved. Without `progress` its lines are logged as warnings, which
    Python prints: nobody waits minutes for something unknown. Raises MissingDependencyError.
    """
    kind = (config.get("engine") or {}).get("type")
    if not provider.shares_disk or not score_env.is_missing(str(kind)):
        return
    if kind == "vllm":
        make(progress or _LOG.warning)
    elif progress is not None:
        progress(
            "Engine: Transformers. vLLM is faster, and has no environment here yet: `llmops"
            " score-env` makes it, in minutes and with 4 GB"
        )
