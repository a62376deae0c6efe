"""Runs inside `ray start` (RAY_START_HOOK), before anything has started."""

from __future__ import annotations

import os
from typing import Any


def configure(params: Any, head: bool) -> None:
    """Leave out the Ray Client server: an unused process and one more open port.

    The command line has no switch for it. `params` is ray._private.parameter.RayParams.
    """
    assert head
    params.ray_client_server_port = None
    # What the cluster runs may start a Ray of its own, which is none of our business.
    os.environ.pop("RAY_START_HOOK", None)
