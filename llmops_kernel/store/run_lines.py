"""The lines that a run writes about itself into its log, and which other lines are Ray's own."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable

from llmops_kernel.metrics.events import (
    CheckpointEvent,
    EvalEvent,
    Event,
    PhaseEvent,
    QueueEvent,
    RestartEvent,
    StartEvent,
    StepEvent,
    WarningEvent,
)
from llmops_kernel.store.log_text import LogText

MARK = "[llmops] "
"""Each line of a run about itself begins with it."""
STEP_EVERY_S = 0.2
"""A run of many steps a second writes a line for some of them: the journal has all."""

_LEFT_OUT = 1000
"""So many more lines are read, of which Ray's own are left out."""
_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\x80-\x9f]")
_WORKER = r"(?:\([\w.:\- ]*pid=\d+[^)]*\) )?"
_OWN = re.compile(rf"^{_WORKER}(\[llmops\] .*)", re.DOTALL)
_DRIVER = re.compile(r"^(?:run \S+, attempt \d+|(?:SUCCEEDED|FAILED|STOPPED)(?:$|: ))")
_BACKGROUND = re.compile(
    rf"^{_WORKER}(?:\d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d,\d+\s+INFO\s|Running entrypoint for job )"
)


def visible_line(line: str) -> str | None:
    """Return a line of a log for a reader of the training; None for one of Ray's own.

    Those are Ray's lines of level INFO and the entrypoint with its encoded arguments.
    """
    plain = _ANSI.sub("", line)
    if _BACKGROUND.match(plain):
        return None
    match = _OWN.match(plain)
    return match[1].removeprefix(MARK) if match else line


def visible_text(text: str) -> str:
    """Return the text without Ray's own lines; a last line without its end stays the last."""
    # Not `splitlines`: a progress bar's carriage returns are no line ends.
    lines = (visible_line(line) for line in text.split("\n"))
    return "\n".join(line for line in lines if line is not None)


def last_lines(log: LogText, lines: int, *, all_lines: bool) -> str:
    """Return the end of a log; Ray's own lines only with `all_lines`."""
    if all_lines or lines <= 0:
        return log.tail(lines)
    text = visible_text(log.tail(lines + _LEFT_OUT))
    all_of_text = text.split("\n")
    return "\n".join(all_of_text[-lines - 1 :] if text.endswith("\n") else all_of_text[-lines:])


def printed_lines(log: LogText, lines: int) -> list[str]:
    """Return the last lines that a run's own code has printed: no line of ours, no blank one."""
    printed = []
    for line in log.tail(lines + _LEFT_OUT).split("\n"):
        # Keep the newest state of a progress bar, and nothing that moves a terminal's cursor.
        text = _CONTROL.sub("", _ANSI.sub("", line.rstrip("\r").rpartition("\r")[2]))
        if text.strip() and not _is_ours(text) and visible_line(text) is not None:
            printed.append(text)
    return printed[-lines:]


def _is_ours(line: str) -> bool:
    return bool(_OWN.match(line) or _DRIVER.match(line))


class RunLines:
    """Prints a line for each phase, logged step, evaluation, checkpoint and warning."""

    def __init__(
        self,
        *,
        write: Callable[[str], object] = lambda line: print(line, flush=True),
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._write, self._clock = write, clock
        self._begun_s: dict[str, float] = {}
        self._total: int | None = None
        self._step_s = 0.0

    def take(self, event: Event) -> None:
        """Print the event's line, if it has one. Never raises: a log must not end a run."""
        try:
            if text := self._text(event):
                clock = time.strftime("%H:%M:%S", time.localtime(self._clock()))
                self._write(f"{MARK}{clock} {text}")
        except (OSError, ValueError):
            return  # The output is closed or its disk is full.

    def _text(self, event: Event) -> str:
        if isinstance(event, StepEvent):
            return self._step(event)
        if isinstance(event, PhaseEvent):
            return self._phase(event)
        if isinstance(event, StartEvent):
            self._total = event.total_steps or None
            return ""
        return _line(event)

    def _step(self, event: StepEvent) -> str:
        now_s = self._clock()
        is_last = event.step == self._total
        if not is_last and 0 <= now_s - self._step_s < STEP_EVERY_S:
            return ""
        self._step_s = now_s
        total = f" of {self._total:,}" if self._total else ""
        parts = [f"step {event.step:,}{total}"]
        if event.loss is not None:
            parts.append(f"loss {event.loss:.4f}")
        if event.learning_rate is not None:
            parts.append(f"learning rate {event.learning_rate:.3g}")
        if event.grad_norm is not None:
            parts.append(f"gradient norm {event.grad_norm:.3g}")
        if event.tokens_per_second is not None:
            parts.append(f"{event.tokens_per_second:,.0f} tokens/s")
        return ", ".join(parts)

    def _phase(self, event: PhaseEvent) -> str:
        time_s = event.time_s or self._clock()
        name = event.name.replace("_", " ")
        if event.state == "begin":
            self._begun_s[event.name] = time_s
            return ""
        begun_s = self._begun_s.pop(event.name, None)
        took = "" if begun_s is None else f" in {max(0.0, time_s - begun_s):.2f} s"
        return f"{name} done{took}{f': {event.detail}' if event.detail else ''}"


def _line(event: Event) -> str:
    if isinstance(event, EvalEvent) and event.metrics:
        numbers = (f"{name} {_number(value)}" for name, value in event.metrics.items())
        return f"evaluation at {event.step:,}: {', '.join(numbers)}"
    if isinstance(event, CheckpointEvent):
        return f"checkpoint of step {event.step:,}: {event.path}"
    if isinstance(event, WarningEvent):
        return f"warning: {event.message}{f' Try: {event.remedy}' if event.remedy else ''}"
    if isinstance(event, RestartEvent):
        since = (
            f"the checkpoint of step {event.from_step:,}" if event.from_step else "the beginning"
        )
        return f"restart from {since}: {event.cause}"
    if isinstance(event, QueueEvent) and event.state == "begin":
        place = f" (place {event.place:,} of {event.length:,})" if event.place else ""
        return f"waiting for resources{place}: {event.reason}"
    return ""


def _number(value: float) -> str:
    return f"{value:.4f}" if math.isfinite(value) else str(value)
