"""The live panel of a run, for notebooks: an anywidget that is fed from the journal."""

from __future__ import annotations

import contextlib
import threading
import time
from pathlib import Path
from typing import Any

import anywidget
import traitlets

from llmops_kernel.errors import LLMOpsError
from llmops_kernel.store.journal.view import RunView
from llmops_kernel.views.columns import PackedRows
from llmops_kernel.views.snapshot import SAMPLE_PAGE, sample_table, snapshot
from llmops_kernel.widgets.source import LiveRun

# Made of extension/src/panel by `make widget`, and committed: installing needs no Node.js.
_STATIC = Path(__file__).parent / "static"
_LOG_EVERY_S = 2.0
_LOG_LINES = 200


def _pack_all(_: object, panel: RunPanel) -> bytes:
    return panel.all_rows()


class RunPanel(anywidget.AnyWidget):
    """All state is in traits, so a reload, a second view and a saved notebook show the same.

    New steps travel as binary messages `{"kind": "rows", "first": index}`; the whole
    history is packed only when the full state is requested.
    """

    _esm = (_STATIC / "panel.js").read_text(encoding="utf-8")
    _css = (_STATIC / "panel.css").read_text(encoding="utf-8")

    state = traitlets.Dict().tag(sync=True)
    log = traitlets.Unicode("").tag(sync=True)
    notice = traitlets.Dict().tag(sync=True)
    """`{"message", "remedy"}` about the panel itself: the cluster does not answer, say."""
    can_page = traitlets.Bool(True).tag(sync=True)
    """Samples that are not shown can be asked for."""
    columns = traitlets.Bytes(b"").tag(sync=True, to_json=_pack_all)

    def __init__(self, run: LiveRun, *, clock: Any = time.time) -> None:
        self._run = run
        self._clock = clock
        self._lock = threading.RLock()
        self._log_read_s = 0.0
        self._stop_asked = False
        self._stop_refused = 0
        self.seen = False
        """True once a browser has drawn the panel."""
        self._source = run.follower()
        self._source.poll()
        self._packed = PackedRows()
        self._packed.sync(self.view)
        super().__init__(state=self._snapshot())
        self.on_msg(self._on_message)

    @property
    def run(self) -> LiveRun:
        return self._run

    @property
    def view(self) -> RunView:
        return self._source.view

    @property
    def is_over(self) -> bool:
        return self._source.is_over

    def _snapshot(self) -> dict[str, Any]:
        run, now_s = self._run, self._clock()
        return {
            **snapshot(self.view, run.record, now_s=now_s, title=run.title).model_dump(mode="json"),
            "stop_asked": self._stop_asked,
            "stop_refused": self._stop_refused,
        }

    def all_rows(self) -> bytes:
        """All rows as of the last refresh; later ones go to all browsers with the next one."""
        with self._lock:
            return self._packed.rows()

    def refresh(self) -> bool:
        """Read what is new and send it; at most three messages. Returns True once it ended."""
        with self._lock:
            self._source.poll()
            if self._source.is_over:
                self._source.drain()
            first = self._packed.sync(self.view)
            # Before the rows: a browser reads them by the columns that the state names.
            self.state = self._snapshot()
            self._send_rows(first)
            self._read_log(now=self._source.is_over)
            if not self.notice.get("stays"):
                self.notice = {}
            self._take_replies_anywhere()
        return self._source.is_over

    def _take_replies_anywhere(self) -> None:
        """Let the Stop button work while a cell waits.

        JupyterLab sends widget messages to a subshell of the kernel, which is free then; but
        ipykernel (7.4) sends them on to the loop that spoke last, which is the waiting cell's.
        """
        with contextlib.suppress(AttributeError):
            del self.comm._reply_subshell_id

    def _send_rows(self, first: int | None) -> None:
        if first is not None:
            self.send({"kind": "rows", "first": first}, buffers=[self._packed.rows(first)])

    def _read_log(self, *, now: bool) -> None:
        moment = time.monotonic()
        if now or moment - self._log_read_s >= _LOG_EVERY_S:
            self._log_read_s = moment
            # A log that cannot be read is not reported: `poll` reports a cluster that is gone.
            with contextlib.suppress(LLMOpsError):
                self.log = self._run.logs(tail=_LOG_LINES)

    def finish(self) -> None:
        """Put the curves into the saved state too: nbclient does not keep messages."""
        self.send_state("columns")

    def report(self, error: Exception, *, stays: bool = False) -> None:
        """Show a problem of the panel until the next poll succeeds; with `stays`, for good."""
        remedy = error.remedy if isinstance(error, LLMOpsError) else ""
        message = error.message if isinstance(error, LLMOpsError) else f"{error}"
        self.notice = {"message": message or type(error).__name__, "remedy": remedy, "stays": stays}

    def _on_message(self, _: Any, content: dict[str, Any], __: Any) -> None:
        kind = content.get("kind")
        if kind == "hello":
            self.seen = True
        elif kind == "resync":
            self.send({"kind": "rows", "first": 0}, buffers=[self.all_rows()])
        elif kind == "samples":
            self._send_samples(content.get("first"))
        elif kind == "stop":
            # Stopping talks to the cluster; the kernel must stay free for other messages.
            threading.Thread(target=self._stop, name="llmops-stop", daemon=True).start()

    def _send_samples(self, first: Any) -> None:
        if isinstance(first, int) and first >= 0:
            with self._lock:
                page = sample_table(self.view, first=first, most=SAMPLE_PAGE)
            self.send({"kind": "samples", "page": page.model_dump(mode="json")})

    def _stop(self) -> None:
        self._show_stop(asked=True)
        try:
            self._run.stop()
        except Exception as error:
            self._show_stop(asked=False)
            self.report(error, stays=True)

    def _show_stop(self, *, asked: bool) -> None:
        with self._lock:
            self._stop_asked = asked
            # Counted, so that a browser which already shows "stopping" notices the change.
            self._stop_refused += not asked
            self.notice = {}
            self.state = self._snapshot()
