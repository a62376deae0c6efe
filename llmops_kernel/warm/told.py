"""What the launcher told this process of its start."""

from __future__ import annotations

import os

from llmops_kernel.warm.launcher import FORKED_ENV_VAR, TOLD_ENV_VAR

_NOT_ASKED = "this process was not started through a fork server's launcher"


def told() -> tuple[bool, str]:
    """(True, "") in a forked process, else (False, why it was started cold)."""
    text = os.environ.get(TOLD_ENV_VAR, "")
    if text == "warm":
        is_own = os.environ.get(FORKED_ENV_VAR) == str(os.getpid())
        return is_own, "" if is_own else _NOT_ASKED
    return False, text.removeprefix("cold:").strip() or _NOT_ASKED
