"""Runs inside `ray start` (RAY_START_HOOK), before anything has started."""

from __future__ import annotations

import os
from typing import Any

from llmops_kernel.warm import start_hook as warm


def configure(params: Any, head: bool) -> None:
    """No Ray Client server, which is an unused process and one more open port; warm workers.

    The command line has no switch for it. `params` is ray._private.parameter.RayParams.
    """
    assert head
    params.ray_client_server_port = None
    warm.configure(params, head)
    # What the cluster runs may start a Ray of its own, which is none of our business.
    os.environ.pop("RAY_START_HOOK", None)
