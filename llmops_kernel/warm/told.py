"""What the launcher told this process of its start."""

from __future__ import annotations

import os

from llmops_kernel.warm.launcher import TOLD_ENV_VAR

_NOT_ASKED = "this process was not started through a fork server's launcher"


def told() -> tuple[bool, str]:
    """(True, "") in a forked process, else (False, why it was started cold)."""
    text = os.environ.get(TOLD_ENV_VAR, "")
    if text == "warm":
        return True, ""
    return False, text.removeprefix("cold:").strip() or _NOT_ASKED
