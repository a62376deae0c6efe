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
    """Make the environment unless it is there, is not needed, or is the worker image's matter.

    `config`: of a score run, resolved. Without `progress` its lines are logged as warnings, which
    Python prints: nobody waits minutes for something unknown. Raises MissingDependencyError.
    """
    kind = (config.get("engine") or {}).get("type")
    if provider.shares_disk and score_env.is_missing(str(kind)):
        make(progress or _LOG.warning)
