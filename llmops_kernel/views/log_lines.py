"""Progress for a log: a line when something is new, not one each few seconds."""

from __future__ import annotations

from llmops_kernel.store.journal.view import RunView
from llmops_kernel.views.static_run import one_line, open_phase

LINE_EVERY_S = 10.0


class LogLines:
    """Chooses the progress lines of one run: at most one each `every_s`.

    With `only_news` there is none as long as nothing has changed.
    """

    def __init__(
        self, *, now_s: float, every_s: float = LINE_EVERY_S, only_news: bool = True
    ) -> None:
        self._every_s = every_s
        self._only_news = only_news
        self._last_s = now_s
        self._last: object = None

    def line(self, view: RunView, *, now_s: float) -> str:
        """Return the line that is due; empty when none is or nothing has changed.

        News is another state, phase or progress; the time that is left is not.
        """
        if now_s - self._last_s < self._every_s:
            return ""
        progress_done = None if view.progress is None else view.progress.done
        count_done = None if view.counted is None else view.counted.done
        starts = "" if view.rows else view.cluster_says
        news = (view.state, view.attempt, open_phase(view), progress_done, count_done, starts)
        if self._only_news and news == self._last:
            return ""
        self._last_s, self._last = now_s, news
        return one_line(view, now_s=now_s)
