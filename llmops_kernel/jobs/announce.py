"""Shows on a cluster's own resource what its newest run does, while a client follows the run."""

from __future__ import annotations

import atexit
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from llmops_kernel.errors import LLMOpsError
from llmops_kernel.providers.capabilities import RunStatus, SupportsRunStatus
from llmops_kernel.store.journal.training_view import TrainingView
from llmops_kernel.store.journal.view import RunView
from llmops_kernel.views import format as fmt
from llmops_kernel.views.snapshot import left_text

EVERY_S = 15.0
"""How often numbers are written at most; a new state is written at once."""
OFF_S = 300.0
"""How long to leave a user who may not write there alone: rights are granted while a run runs."""
_LAST_S = 2.0
"""How long the end of the process waits for the run's last state to be written."""


class Announcer:
    """Hands the run's state to the provider, in a thread: who follows the run never waits."""

    def __init__(
        self,
        provider: SupportsRunStatus,
        run_id: str,
        *,
        target: Callable[[], tuple[str, float]],
        every_s: float = EVERY_S,
    ) -> None:
        """`target` returns the cluster's name and when the newest attempt was submitted (Unix)."""
        self._provider, self._run_id, self._target = provider, run_id, target
        self._every_s = every_s
        self._lock = threading.Lock()
        self._state = ""
        self._due_s = 0.0
        self._next: Callable[[], RunStatus] | None = None
        self._thread: threading.Thread | None = None
        self._off_until_s = 0.0

    def nudge(self, view: RunView) -> None:
        """Start writing what the view shows, if that is due; return at once."""
        state, now_s = str(view.state), time.monotonic()
        is_over = view.is_terminal
        if now_s < self._off_until_s or (state == self._state and (now_s < self._due_s or is_over)):
            return
        was_over = is_over and not self._state
        self._state, self._due_s = state, now_s + self._every_s
        values = _values(view)
        with self._lock:
            # One that is still being written is followed by this one, the newest.
            self._next = lambda: RunStatus(
                run=self._run_id,
                submitted_s=self._target()[1],
                state=state,
                has_ended=is_over,
                was_over=was_over,
                **values,
            )
            if self._thread is not None:
                return
            name = f"llmops-announce-{self._run_id}"
            self._thread = threading.Thread(target=self._write, name=name, daemon=True)
            self._thread.start()
        if is_over and not was_over:
            atexit.register(self.finish, _LAST_S)

    def finish(self, timeout_s: float) -> None:
        """Wait until what was started is written."""
        thread = self._thread
        if thread is not None:
            thread.join(timeout_s)

    def _write(self) -> None:
        while True:
            with self._lock:
                status, self._next = self._next, None
                if status is None:
                    self._thread = None
                    return
            # Nothing of the run depends on it: what cannot be written is written the next time.
            with suppress(LLMOpsError):
                if not self._provider.show_run(self._target()[0], status()):
                    self._off_until_s = time.monotonic() + OFF_S


def _values(view: RunView) -> dict[str, str]:
    progress = view.progress
    loss = view.loss if isinstance(view, TrainingView) else None
    total = "" if progress is None or progress.total is None else f"/{progress.total}"
    return {
        "step": "" if progress is None else f"{progress.done}{total}",
        "loss": "" if loss is None or not fmt.known(loss) else fmt.loss(loss),
        "time_left": left_text(view.time_left(time.time())),
    }
