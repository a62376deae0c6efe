"""Follow a run: a live screen in a terminal, plain lines in a file or pipe."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from llmops_kernel.errors import LLMOpsError
from llmops_kernel.services.types import AnyEvent, RunView
from llmops_kernel.views import format as fmt
from llmops_kernel.views.log_lines import LogLines
from llmops_kernel.views.snapshot import describe, restart_text
from llmops_kernel.views.state_text import queue_text
from llmops_kernel.widgets.source import LiveRun, Source

if TYPE_CHECKING:
    from rich.console import Console

POLL_INTERVAL_S = 0.25
LONGEST_WAIT_S = 5.0


def follow_in_terminal(
    run: LiveRun,
    *,
    console: Console | None = None,
    timeout_s: float | None = None,
    leave: Callable[[RunView], bool] = lambda _: False,
    traceback: bool = False,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.time,
) -> str:
    """Show the run until it ends and print a summary; returns its state.

    After `timeout_s`, and when `leave` says so of the run, it returns a state that is not a final
    one. KeyboardInterrupt passes: the run continues without the terminal.
    """
    from llmops_kernel.cli.console import out

    console = console or out()
    source = run.follower()
    follow = _follow_live if console.is_terminal else _follow_lines
    loop = _Loop(source, timeout_s=timeout_s, leave=leave, sleep=sleep, clock=clock)
    follow(loop, run, console)
    if source.is_over:
        from llmops_kernel.cli.runs.live_parts import summary

        console.print(summary(source.view, run.record, now_s=clock(), traceback=traceback))
    return source.view.state


class _Loop:
    """Polls until the run has ended or the time is up; survives a cluster that does not answer."""

    def __init__(
        self,
        source: Source,
        *,
        timeout_s: float | None,
        leave: Callable[[RunView], bool],
        sleep: Callable[[float], None],
        clock: Callable[[], float],
    ) -> None:
        self.source = source
        self.clock = clock
        self.trouble = ""
        self._leave = leave
        self._sleep = sleep
        self._wait_s = POLL_INTERVAL_S
        self._deadline_s = None if timeout_s is None else clock() + timeout_s

    def next(self) -> list[AnyEvent]:
        """Return new events; sets `trouble` while they cannot be read."""
        try:
            events = self.source.poll()
            if self.source.is_over:
                events = [*events, *self.source.drain()]
        except LLMOpsError as error:
            self.trouble = error.message
            self._wait_s = min(LONGEST_WAIT_S, 2 * self._wait_s)
            return []
        self.trouble, self._wait_s = "", POLL_INTERVAL_S
        return events

    def wait(self) -> bool:
        """Wait a little; return False once there is nothing to wait for."""
        late = self._deadline_s is not None and self.clock() >= self._deadline_s
        if late or (self.source.is_over and not self.trouble):
            return False
        if self._leave(self.source.view):
            return False
        self._sleep(self._wait_s)
        return True


def _follow_live(loop: _Loop, run: LiveRun, console: Console) -> None:
    from rich.live import Live

    from llmops_kernel.cli.runs.live_parts import screen

    def draw() -> object:
        return screen(loop.source.view, run.record, now_s=loop.clock(), trouble=loop.trouble)

    loop.next()
    # Transient: the summary replaces it.
    with Live(console=console, auto_refresh=False, transient=True) as live:
        while True:
            live.update(draw(), refresh=True)  # type: ignore[arg-type]
            if not loop.wait():
                return
            loop.next()


def _follow_lines(loop: _Loop, run: LiveRun, console: Console) -> None:
    def say(text: str) -> None:
        console.print(text, markup=False)

    say(f"{run.id}: {describe(run.record)}")
    progress = LogLines(now_s=loop.clock())
    shown_trouble, shown_start, shown_state = "", "", ""
    while True:
        events = loop.next()
        unit = progressed.unit if (progressed := loop.source.view.progress) else "steps"
        for text in filter(None, (line_of(event, unit=unit) for event in events)):
            say(text)
        if (start := _how_started(loop.source.view)) != shown_start:
            shown_start = start
            say(f"processes: {start}")
        if (state := _state_reason(loop.source.view)) != shown_state:
            shown_state = state
            if state:
                say(state)
        if loop.trouble != shown_trouble:
            shown_trouble = loop.trouble
            say(shown_trouble or "The cluster is reachable again.")
        line = progress.line(loop.source.view, now_s=loop.clock())
        if line and not loop.source.is_over:
            say(line)
        if not loop.wait():
            return


def _how_started(view: RunView) -> str:
    return view.warmth.text if view.warmth else ""


def _state_reason(view: RunView) -> str:
    """Return `Queued. Place 1 of 2 in the queue: ...`; the other states have events."""
    return f"Queued. {queue_text(view)}" if view.state == "QUEUED" else ""


def line_of(event: AnyEvent, *, unit: str = "steps") -> str:
    """Return an event's line in a plain log; empty for frequent events and the end."""
    if event.kind == "phase" and event.state == "end":
        detail = f": {event.detail}" if event.detail else ""
        return f"{event.name.replace('_', ' ')} done{detail}"
    if event.kind == "start" and event.performance:
        return f"performance: {event.performance}"
    if event.kind == "eval" and event.metrics:
        numbers = (f"{n.removeprefix('eval_')} {fmt.number(v)}" for n, v in event.metrics.items())
        position = f"at step {event.step}" if unit == "steps" else f"of {event.step:,} {unit}"
        return f"evaluation {position}: {', '.join(numbers)}"
    if event.kind == "checkpoint":
        return f"checkpoint of step {event.step}: {event.path}"
    if event.kind == "warning":
        return f"warning: {event.message}" + (f" Try: {event.remedy}" if event.remedy else "")
    if event.kind == "restart":
        return restart_text(event.from_step, event.cause, event.failures_left)
    return ""
