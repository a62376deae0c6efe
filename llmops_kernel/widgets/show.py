"""Show a run in a notebook: live in the background, or waiting in the cell."""

from __future__ import annotations

import threading
import time
import uuid
from typing import Any

from llmops_kernel.errors import LLMOpsError
from llmops_kernel.views import static_run
from llmops_kernel.views.run_text.state_text import called
from llmops_kernel.views.saved_run import MIME_TYPE, saved_run
from llmops_kernel.widgets.run_panel import RunPanel
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
        MIME_TYPE: saved_run(panel.view, record, now_s=time.time(), title=title),
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
