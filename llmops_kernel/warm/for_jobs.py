"""Requests of a job's processes to their node, and the variables that a template sets for them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from llmops_kernel.config.models.section import WarmSettings
from llmops_kernel.warm import tokenizer_cache
from llmops_kernel.warm.env_reads import EnvReads
from llmops_kernel.warm.files import WarmFolder
from llmops_kernel.warm.launcher import DIR_ENV_VAR, FORKED_ENV_VAR, START_REPORT_ENV_VAR
from llmops_kernel.warm.plan import REFUSE_ENV_VAR

KEEP_ENV_VAR = "LLMOPS_WARM_KEEP_BYTES"
"""Set on the nodes of a cluster whose template has another value than the default."""
_NOT_ASKED = "this process was not started through a fork server's launcher"


def keep_environment(warm: WarmSettings) -> dict[str, str]:
    """Return the variable that nodes are started with; none for the default."""
    return {} if warm.keep == WarmSettings().keep else {KEEP_ENV_VAR: str(int(warm.keep))}


def model_cache_bytes() -> int:
    """Return how many bytes of loaded models this node may keep.

    0 where nothing is to be kept: by the template, or because the run is to start cold.
    """
    if DIR_ENV_VAR not in os.environ or REFUSE_ENV_VAR in os.environ:
        return 0
    text = os.environ.get(KEEP_ENV_VAR, "")
    return int(text) if text.isdecimal() else int(WarmSettings().keep)


def start_report() -> tuple[bool, str]:
    """Return (True, "") in a forked process, else (False, the reason for the cold start)."""
    text = os.environ.get(START_REPORT_ENV_VAR, "")
    if text == "warm":
        is_own = os.environ.get(FORKED_ENV_VAR) == str(os.getpid())
        return is_own, "" if is_own else _NOT_ASKED
    return False, text.removeprefix("cold:").strip() or _NOT_ASKED


def reads_of_server() -> EnvReads:
    """Return which variables the libraries of this node's fork server have read."""
    return EnvReads.of_report(_report().get("reads", {}))


def looked_for_by_server() -> list[str]:
    """Return the modules that its libraries have looked for and not found."""
    return list(_report().get("looked_for", ()))


def _report() -> dict[str, Any]:
    folder = os.environ.get(DIR_ENV_VAR)
    return WarmFolder(Path(folder)).read_report() if folder else {}


def cached_tokenizer(request: tokenizer_cache.TokenizerRequest) -> Any:
    """Return the tokenizer if the fork server had loaded it before the fork, else None.

    It is the process's own, and is returned once.
    """
    return tokenizer_cache.take(request) if start_report()[0] else None


def cache_tokenizer(request: tokenizer_cache.TokenizerRequest) -> None:
    """Ask the node's fork server to load a tokenizer for the next runs; does not wait for it."""
    if folder := os.environ.get(DIR_ENV_VAR):
        tokenizer_cache.ask(folder, request)
