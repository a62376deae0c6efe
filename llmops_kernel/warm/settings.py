"""How much a node keeps for its next runs, as the cluster's template says."""

from __future__ import annotations

import os

from llmops_kernel.config.models.section import WarmSettings
from llmops_kernel.warm.launcher import DIR_ENV_VAR
from llmops_kernel.warm.plan import REFUSE_ENV_VAR

KEEP_ENV_VAR = "LLMOPS_WARM_KEEP_BYTES"
"""Set on the nodes of a cluster whose template has another value than the default."""


def keep_environment(warm: WarmSettings) -> dict[str, str]:
    """Return the variable that nodes are started with; none for the default."""
    return {} if warm.keep == WarmSettings().keep else {KEEP_ENV_VAR: str(int(warm.keep))}


def kept_bytes() -> int:
    """Return how many bytes of loaded models this node may keep.

    0 where nothing is to be kept: by the template, or because the run is to start cold.
    """
    if DIR_ENV_VAR not in os.environ or REFUSE_ENV_VAR in os.environ:
        return 0
    text = os.environ.get(KEEP_ENV_VAR, "")
    return int(text) if text.isdecimal() else int(WarmSettings().keep)
