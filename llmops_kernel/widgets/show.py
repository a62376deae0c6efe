"""Show a run in a notebook: live in the background, or waiting in the cell."""

from __future__ import annotations

import contextlib
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anywidget
import traitlets

from llmops_kernel.errors import LLMOpsError
from llmops_kernel.planner.verdict import Verdict
from llmops_kernel.services.verdict import VerdictOfPanel
from llmops_kernel.store.journal.view import RunView
from llmops_kernel.views import static_run
from llmops_kernel.views.columns import PackedRows
from llmops_kernel.views.profile import PROFILED_STEPS, profile_detail
from llmops_kernel.views.saved_run import MIME_TYPE, saved_run
from llmops_kernel.views.snapshot import SAMPLE_PAGE, sample_table, snapshot
from llmops_kernel.views.state_text import called
from llmops_kernel.widgets.source import LiveRun

POLL_INTERVAL_S = 0.25
"""At most three messages a poll, mostly two: below ten a second."""
LONGEST_WAIT_S = 5.0
"""Between polls while the cluster does not answer."""
PICTURE_AFTER_S = 5.0
"""No browser has drawn the panel after this time: papermill, or a closed page."""
PICTURE_EVERY_S = 15.0

_VIEW = "application/vnd.jupyter.widget-view+json"
Bundle = dict[str, Any]


def show(run: LiveRun) -> None:
    """Display the live panel and return at once; a thread follows until the run ends.

    A run that has ended is displayed as it is saved: that needs no kernel.
    """
    panel = RunPanel(run)
    if panel.is_over:
        display_bundle(static_picture(panel))
    else:
        follow_in_background(panel, display_id=display_bundle(_live(panel)))


def wait_in_notebook(run: LiveRun, timeout_s: float | None = None) -> str:
    """Show the panel and block until the run ends; leaves a picture and a table in the cell.

    Returns the run's state, which is not a final one after a time-out. On a time-out and on
    KeyboardInterrupt (which is passed on) the panel stays and keeps following in the background.
    """
    panel = RunPanel(run)
    display_id = display_bundle(_live(panel))
    waiting = _Waiting(panel, display_id=display_id, timeout_s=timeout_s)
    try:
        ended = waiting.until_end()
    except KeyboardInterrupt:
        follow_in_background(panel, display_id=display_id)
        raise
    if ended:
        panel.finish()
        _update(static_picture(panel), display_id)
        display_bundle(static_table(panel))
    else:
        follow_in_background(panel, display_id=display_id)
    return panel.view.state


def follow_in_background(panel: RunPanel, *, display_id: str | None = None) -> threading.Thread:
    """Start a daemon thread that ends with the run, or with the kernel."""

    def follow() -> None:
        # What stays in the notebook must show without a kernel: no live widget.
        if _follow(panel) and display_id is not None:
            _update(static_picture(panel), display_id)

    thread = threading.Thread(target=follow, name=f"llmops-panel-{panel.run.id}", daemon=True)
    thread.start()
    return thread


def _follow(panel: RunPanel) -> bool:
    """Return True when the run ended; False when the panel stopped, which it then reports."""
    pace = _Pace()
    while True:
        try:
            if _refresh(panel, pace):
                panel.finish()
                return True
        except Exception as error:
            # A traceback of this thread is shown nowhere, so the panel reports that it stopped.
            panel.report(
                LLMOpsError(f"The panel stopped: {error!r}", remedy="call run.show() again")
            )
            return False
        time.sleep(pace.wait_s)


class _Pace:
    """Polls at the usual pace, more slowly while the cluster does not answer."""

    def __init__(self) -> None:
        self.wait_s = POLL_INTERVAL_S

    def good(self) -> None:
        self.wait_s = POLL_INTERVAL_S

    def bad(self) -> None:
        self.wait_s = min(LONGEST_WAIT_S, self.wait_s * 2)


def _refresh(panel: RunPanel, pace: _Pace) -> bool:
    try:
        ended = panel.refresh()
    except LLMOpsError as error:
        panel.report(error)
        pace.bad()
        return False
    pace.good()
    return ended


class _Waiting:
    """The loop inside the cell, where messages still belong to it: nbclient drops later ones."""

    def __init__(self, panel: RunPanel, *, display_id: str, timeout_s: float | None) -> None:
        now_s = time.monotonic()
        self._panel = panel
        self._display_id = display_id
        self._deadline_s = None if timeout_s is None else now_s + timeout_s
        self._picture_s = now_s + PICTURE_AFTER_S

    def until_end(self) -> bool:
        pace = _Pace()
        while not _refresh(self._panel, pace):
            now_s = time.monotonic()
            if self._deadline_s is not None and now_s >= self._deadline_s:
                return False
            self._keep_picture(now_s)
            time.sleep(pace.wait_s)
        return True

    def _keep_picture(self, now_s: float) -> None:
        """Update the saved notebook's picture if there is no browser; with one it would flicker."""
        if not self._panel.seen and now_s >= self._picture_s:
            self._picture_s = now_s + PICTURE_EVERY_S
            _update(_live(self._panel, picture=True), self._display_id)


def _live(panel: RunPanel, *, picture: bool = False) -> Bundle:
    view = panel.view
    bundle: Bundle = {
        _VIEW: {"version_major": 2, "version_minor": 0, "model_id": panel.model_id},
        "text/plain": static_run.one_line(view),
    }
    return {**static_picture(panel), **bundle} if picture else bundle


def static_picture(panel: RunPanel) -> Bundle:
    """Return the run as JSON for Lab, a picture for others, and the summary for machines."""
    record, title = panel.run.record, panel.run.title
    return {
        "image/png": static_run.render_png(panel.view, title=called(record, title=title)),
        "text/plain": static_run.one_line(panel.view),
        MIME_TYPE: saved_run(
            panel.view, record, now_s=time.time(), title=title, verdict=panel.verdict
        ),
    }


def static_table(panel: RunPanel) -> Bundle:
    record, title = panel.run.record, panel.run.title
    # A separate output: JupyterLab drops a picture inside HTML from a notebook it does not trust.
    return {
        "text/html": static_run.table_html(panel.view, record, title=title),
        "text/plain": static_run.text(panel.view, record, title=title),
    }


def display_bundle(bundle: Bundle) -> str:
    from IPython.display import display

    display_id = uuid.uuid4().hex
    display(_encoded(bundle), raw=True, display_id=display_id)
    return display_id


def _update(bundle: Bundle, display_id: str) -> None:
    from IPython.display import update_display

    update_display(_encoded(bundle), raw=True, display_id=display_id)


def _encoded(bundle: Bundle) -> Bundle:
    import base64

    png = bundle.get("image/png")
    return bundle if png is None else {**bundle, "image/png": base64.b64encode(png).decode()}


# --- The live panel of a run, for notebooks: an anywidget that is fed from the journal ---


# Made of extension/src/panel by `make widget`, and committed: installing needs no Node.js.
_STATIC = Path(__file__).parent / "static"
_LOG_EVERY_S = 2.0
_LOG_LINES = 200


_ACTIONS: dict[str, Callable[[LiveRun], object]] = {
    "stop": lambda run: run.stop(),
    "restart": lambda run: run.restart(),
    "profile": lambda run: run.profile(PROFILED_STEPS),
}


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
        self._verdict = VerdictOfPanel()
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

    @property
    def verdict(self) -> Verdict | None:
        """Return what bounds the run, as the panel shows it."""
        return self._verdict(self._run.record, self.view)

    def _snapshot(self) -> dict[str, Any]:
        run = self._run
        state = snapshot(
            self.view,
            run.record,
            now_s=self._clock(),
            title=run.title,
            verdict=self.verdict,
        )
        return {
            **state.model_dump(mode="json"),
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
        elif kind == "profile_of":
            self._send_profile(content.get("number"))
        elif kind in _ACTIONS:
            # It talks to the cluster; the kernel must stay free for other messages.
            threading.Thread(
                target=self._act, args=(kind,), name=f"llmops-{kind}", daemon=True
            ).start()

    def _send_samples(self, first: Any) -> None:
        if isinstance(first, int) and first >= 0:
            with self._lock:
                page = sample_table(self.view, first=first, most=SAMPLE_PAGE)
            self.send({"kind": "samples", "page": page.model_dump(mode="json")})

    def _send_profile(self, number: Any) -> None:
        if isinstance(number, int):
            with self._lock:
                detail = profile_detail(self.view, number)
            if detail is not None:
                self.send({"kind": "profile", "detail": detail.model_dump(mode="json")})

    def _act(self, kind: str) -> None:
        """Do what a user asks for; what the browser shows meanwhile ends with the message."""
        if kind == "stop":
            self._show_stop(asked=True)
        try:
            _ACTIONS[kind](self._run)
        except Exception as error:
            if kind == "stop":
                self._show_stop(asked=False)
            self.report(error, stays=True)
        self.send({"kind": "acted", "action": kind})

    def _show_stop(self, *, asked: bool) -> None:
        with self._lock:
            self._stop_asked = asked
            # Counted, so that a browser which already shows "stopping" notices the change.
            self._stop_refused += not asked
            self.notice = {}
            self.state = self._snapshot()
