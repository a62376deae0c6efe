"""Blocks until a cluster is ready, and reports why it is not."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Final

from llmops_kernel.errors import ClusterDeadError, ClusterStartError
from llmops_kernel.providers.kuberay.api.cache import Cache
from llmops_kernel.providers.kuberay.resource.objects import one_line
from llmops_kernel.providers.protocol import ClusterInfo, ClusterState, Progress, Waiting

STUCK_S: Final = 60.0
"""How long to wait on a hopeless reason: a node, a quota or an image may still appear."""
DENIED_S: Final = 3.0
"""The same for a right that is missing: only an API server that starts grants it by itself."""
_LONG: Final = 200
"""Characters of a line of progress; the error at the end, and `llmops status`, have the rest."""
_CHANGES: Final = re.compile(r":\d{2,5}\b|\b\d+(?:\.\d+)? ?(?:ms|s|min|h)\b")
"""Ports and times: a sentence in which only these are new says nothing new."""
_COUNTS: Final = re.compile(r"\d of \d+ workers?\b")
_EVERY_S: Final = 10.0
_POLL_S: Final = 0.5


def wait_until_ready(
    ask: Callable[[], ClusterInfo],
    cache: Cache,
    *,
    timeout_s: float | None,
    report: Progress,
    stuck_s: float = STUCK_S,
    is_done: Callable[[ClusterInfo], bool] = lambda _: True,
) -> ClusterInfo:
    """Wait until it is ready, and `is_done` says so as well.

    Raises ClusterStartError with the reasons, ClusterDeadError, and what `ask` raises.
    """
    began_s = time.monotonic()
    stuck_since_s: float | None = None
    reporter = _ProgressReporter(report, began_s)
    while True:
        info = ask()
        now_s = time.monotonic()
        if info.is_ready and not _may_not_use(info) and is_done(info):
            return info
        if info.state in (ClusterState.STOPPED, ClusterState.DEAD):
            raise ClusterDeadError(
                f"Cluster {info.name!r} is {info.state}: {info.message}",
                remedy=info.remedy or f"llmops resume {info.name}",
            )
        stuck_since_s = (stuck_since_s or now_s) if _is_stuck(info) else None
        limit_s = min(stuck_s, DENIED_S) if _is_denied(info) else stuck_s
        if stuck_since_s is not None and now_s - stuck_since_s >= limit_s:
            raise _timeout_error(
                info, f"and needs a change to become ready (waited {limit_s:.0f} s)"
            )
        if timeout_s is not None and now_s - began_s >= timeout_s:
            raise _timeout_error(info, f"after {timeout_s:.0f} s")
        reporter.update(info)
        cache.wait(_POLL_S)


class _ProgressReporter:
    """Reports each change of the sentence, and now and then that the wait continues."""

    def __init__(self, report: Progress, began_s: float) -> None:
        self._report = report
        self._began_s = began_s
        self._told = ""
        self._reported_s = 0.0

    def update(self, info: ClusterInfo) -> None:
        sentence = sentence_of(info)
        now_s, comparable = time.monotonic(), _CHANGES.sub("", sentence)
        if comparable == self._told and now_s - self._reported_s < _EVERY_S:
            return
        self._told, self._reported_s = comparable, now_s
        self._report(f"{sentence} ({now_s - self._began_s:.0f} s)")


def sentence_of(info: ClusterInfo) -> str:
    """Return why it is not ready, in one short line."""
    workers_text = ""
    if info.workers_wanted and info.state is ClusterState.STARTING:
        workers_text = f"{info.workers_ready or 0} of {info.workers_wanted} workers are ready"
    message = info.message
    if len(message) > _LONG and info.waiting:
        message = info.waiting[0].message  # Without the routes that were tried.
    message = one_line(message, limit=_LONG)
    if workers_text and not _COUNTS.search(message):
        return f"{workers_text}; {message[:1].lower()}{message[1:]}" if message else workers_text
    return message or f"It is {info.state}"


def _is_stuck(info: ClusterInfo) -> bool:
    return any(reason.is_stuck for reason in info.waiting)


def _is_denied(info: ClusterInfo) -> bool:
    return any(reason.is_stuck and reason.kind == "permission" for reason in info.waiting)


def _may_not_use(info: ClusterInfo) -> bool:
    """Return whether the operator reports it as ready, and this user may not ask its Ray."""
    return info.is_ready and info.dashboard_url is None and _is_denied(info)


def _timeout_error(info: ClusterInfo, duration: str) -> ClusterStartError:
    reasons = info.waiting or (Waiting(message=info.message or str(info.state)),)
    problem = "is ready, but you may not use it" if info.is_ready else f"is not ready {duration}"
    first, *rest = (reason.message for reason in reasons)
    first = info.message if info.message.startswith(first) else first
    lines = "".join(f"\n  {line}" for line in (first, *rest))
    remedies = dict.fromkeys(reason.remedy for reason in reasons if reason.remedy)
    return ClusterStartError(
        f"Cluster {info.name!r} {problem}:{lines}",
        remedy="; ".join(remedies) or f"`llmops status {info.name}` shows its state",
    )
