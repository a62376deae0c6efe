"""Long-running operations: started by a request, reported on every page."""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections.abc import Callable
from typing import Any

from llmops_kernel.errors import LLMOpsError
from llmops_kernel.server.hub import Cursor, Frame, Json, frame
from llmops_kernel.server.wire.common import OperationInfo, Trouble, trouble
from llmops_kernel.server.wire.live import OperationsNews

KEPT = 50
KEPT_LINES = 20
_LOG = logging.getLogger(__name__)

Progress = Callable[[str], None]
Work = Callable[[Progress], Json | None]


_list = list  # `Operations.list` hides the built-in inside the class.


class Operations:
    """Progress only: what an operation made is found in the store and at the providers.

    A thread each, so that a long start delays no other request; a Jupyter server that ends
    leaves a start to itself, and the next `up` finishes it.
    """

    def __init__(self, *, changed: Callable[[], None] = lambda: None) -> None:
        self._changed = changed
        self._lock = threading.Lock()
        self._known: dict[str, OperationInfo] = {}
        self._versions: dict[str, int] = {}
        self._version = 0

    def start(self, kind: str, what: str, work: Work) -> OperationInfo:
        """Run `work` in a thread and return at once. `work` gets a function for progress lines."""
        info = OperationInfo(
            id=secrets.token_hex(6), kind=kind, what=what, state="running", started_s=time.time()
        )
        self._put(info)
        thread = threading.Thread(
            target=self._run, args=(info.id, work), name=f"llmops-{kind}-{what}", daemon=True
        )
        thread.start()
        return info

    def get(self, operation_id: str) -> OperationInfo | None:
        with self._lock:
            return self._known.get(operation_id)

    def list(self) -> list[OperationInfo]:
        """Return the operations, newest first."""
        with self._lock:
            return list(reversed(self._known.values()))

    def running(self, kind: str) -> _list[OperationInfo]:
        return [info for info in self.list() if info.kind == kind and info.state == "running"]

    def since(self, version: int) -> tuple[_list[OperationInfo], int]:
        """Return the operations that changed after `version`, and the current version."""
        with self._lock:
            changed = [
                self._known[key]
                for key, changed_at in self._versions.items()
                if changed_at > version
            ]
            return changed, self._version

    def _run(self, operation_id: str, work: Work) -> None:
        def report(line: str) -> None:
            operation = self._known[operation_id]
            self._update(operation_id, lines=[*operation.lines, line][-KEPT_LINES:])

        try:
            result = work(report)
        except LLMOpsError as error:
            self._end(operation_id, state="failed", trouble=trouble(error))
        except Exception as error:
            _LOG.exception("operation %s", operation_id)
            reported = Trouble(message=repr(error), remedy="see the log of the Jupyter server")
            self._end(operation_id, state="failed", trouble=reported)
        else:
            self._end(operation_id, state="done", result=result or {})

    def _end(self, operation_id: str, **values: Any) -> None:
        self._update(operation_id, ended_s=time.time(), **values)

    def _update(self, operation_id: str, **values: Any) -> None:
        self._put(self._known[operation_id].model_copy(update=values))

    def _put(self, info: OperationInfo) -> None:
        with self._lock:
            self._version += 1
            self._known[info.id] = info
            self._versions[info.id] = self._version
            self._forget_old()
        self._changed()

    def _forget_old(self) -> None:
        ended = [key for key, info in self._known.items() if info.state != "running"]
        for key in ended[: max(0, len(self._known) - KEPT)]:
            del self._known[key], self._versions[key]


class OperationsFeed:
    """Topic `operations`: each one as it changes; ended ones of the past to a new page too."""

    period_s = 1.0

    def __init__(self, operations: Operations) -> None:
        self._operations = operations

    def poll(self) -> None:
        """Do nothing: operations wake the hub themselves."""

    def news(self, cursor: Cursor, have: Json) -> tuple[list[Frame], Cursor]:
        changed, version = self._operations.since(cursor or 0)
        if not changed and cursor is not None:
            return [], version
        news = OperationsNews(operations=changed, whole=cursor is None)
        return [frame("operations", news)], version

    def close(self) -> None:
        """Do nothing: no resource is held."""
