"""Whether this process was forked from the fork server, as the launcher reports it."""

from __future__ import annotations

import os

from llmops_kernel.warm.launcher import FORKED_ENV_VAR, START_REPORT_ENV_VAR

_NOT_ASKED = "this process was not started through a fork server's launcher"


def start_report() -> tuple[bool, str]:
    """Return (True, "") in a forked process, else (False, the reason for the cold start)."""
    text = os.environ.get(START_REPORT_ENV_VAR, "")
    if text == "warm":
        is_own = os.environ.get(FORKED_ENV_VAR) == str(os.getpid())
        return is_own, "" if is_own else _NOT_ASKED
    return False, text.removeprefix("cold:").strip() or _NOT_ASKED
