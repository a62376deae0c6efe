"""Writes what an idle guard decides as events of the RayCluster, where all its users see it."""

from __future__ import annotations

import getpass
import hashlib
import logging
import re
import socket
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Final

from llmops_kernel.errors import LLMOpsError
from llmops_kernel.providers.kuberay.api.client import KubeError
from llmops_kernel.providers.kuberay.api.paths import events_path
from llmops_kernel.providers.kuberay.resource import names
from llmops_kernel.providers.kuberay.resource.objects import one_line
from llmops_kernel.providers.kuberay.state.discovery import LocatedCluster

COMPONENT: Final = "llmops-guard"
_LONGEST: Final = 1000
"""Kubernetes accepts messages of 1024 characters."""
_LOG = logging.getLogger(__name__)


def who() -> str:
    """Return `user@host` of this process, for people: it proves nothing."""
    user = "unknown"
    with suppress(OSError, KeyError, ImportError):
        user = getpass.getuser()
    return f"{user}@{socket.gethostname()}"


def record(located: LocatedCluster, reason: str, message: str, *, refused: bool = False) -> None:
    """Create an event; the same decision about the same version makes one. Raises nothing."""
    try:
        located.kube.create(
            events_path(located.scope.namespace), _event(located, reason, message, refused=refused)
        )
    except LLMOpsError as error:
        # A right to make events may be missing: that neither stops nor hides a decision.
        if not (isinstance(error, KubeError) and error.reason == "AlreadyExists"):
            _LOG.warning("llmops guard: no event for %r: %s", message, error.message)


def _event(located: LocatedCluster, reason: str, message: str, *, refused: bool) -> dict[str, Any]:
    meta = located.raycluster["metadata"]
    by = who()
    same = (located.uid, str(meta.get("generation")), reason, re.sub(r"[0-9.]+", "", message), by)
    key = hashlib.sha256("\n".join(same).encode()).hexdigest()[:16]
    now = datetime.fromtimestamp(located.kube.clock.now_s(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {
            "name": f"{located.own_name}.{key}",
            "namespace": located.scope.namespace,
        },
        "involvedObject": {
            "apiVersion": names.API_VERSION,
            "kind": names.KIND,
            "name": located.own_name,
            "namespace": located.scope.namespace,
            "uid": located.uid,
        },
        "reason": reason,
        "message": one_line(f"{message} (idle guard of {by})", limit=_LONGEST),
        "type": "Warning" if refused else "Normal",
        "source": {"component": COMPONENT},
        "reportingComponent": COMPONENT,
        "reportingInstance": by[:120],
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }
