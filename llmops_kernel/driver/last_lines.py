"""The last lines of a run's workers are in the driver's log before the run is said to have ended.

Ray reads the files of its workers every 0.1 s and sends new lines to the driver, which prints them.
A driver that ends at once never prints the last ones: they are in no log that a user sees. So
each worker writes a mark after its last line, and the driver waits for the marks and prints none.
A worker group that replaces another one begins with marks, too: those of the other are void then.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from llmops_kernel.driver import compat
from llmops_kernel.hardware.load import patience_s

_FIRST = "\x02first line of worker "
_LAST = "\x02last line of worker "
_RETURNED_S = 3.0
"""Seconds that marks may take on an idle machine: 0.1 - 0.3 s were measured."""
_KILLED_S = 0.6
"""Seconds for workers that may have been killed before they wrote a mark."""
_HANDLER = "llmops_last_lines"


def mark_first_lines(worker: int) -> None:
    """Say in both streams of this worker's process that it begins."""
    _write(f"{_FIRST}{worker}\n")


def mark_last_lines(worker: int) -> None:
    """Say in both streams of this worker's process that nothing follows."""
    _write(f"{_LAST}{worker}\n")


def _write(line: str) -> None:
    for number, stream in ((1, sys.stdout), (2, sys.stderr)):
        with suppress(OSError, ValueError):
            stream.flush()
            os.write(number, line.encode())


class LastLines:
    """Takes the marks out of what the driver prints. Make it before `ray.init`."""

    def __init__(self) -> None:
        self._seen: set[tuple[int, bool]] = set()
        self._more = threading.Condition()
        self._dispatcher: Any = None
        with suppress(ImportError, AttributeError):
            self._dispatcher = compat.get("stdstream_dispatcher")
            # Before Ray's own handler, which prints.
            self._dispatcher.add_handler(_HANDLER, self._take)

    def wait(self, workers: Iterable[int], *, returned: bool) -> None:
        """Return once all that these workers wrote is printed, or when that takes too long.

        `returned`: none of them was killed. Call it once.
        """
        expected = {(worker, is_err) for worker in workers for is_err in (False, True)}
        if self._dispatcher is None:
            return
        with self._more:
            limit_s = patience_s(_RETURNED_S if returned else _KILLED_S)
            self._more.wait_for(lambda: expected <= self._seen, limit_s)
        # Returns after what was sent with the last mark is printed.
        self._dispatcher.remove_handler(_HANDLER)

    def _take(self, batch: dict[str, Any]) -> None:
        """Take the marks out of some lines of one stream of one worker."""
        lines = []
        for line in batch["lines"]:
            mark = _FIRST if _FIRST in line else _LAST
            text, separator, worker = line.partition(mark)
            if not separator or not worker.isdecimal():
                lines.append(line)
                continue
            if text:  # The worker's own last line does not end in a new line.
                lines.append(text)
            stream = (int(worker), bool(batch["is_err"]))
            with self._more:
                if mark == _LAST:
                    self._seen.add(stream)
                else:
                    self._seen.discard(stream)
                self._more.notify_all()
        batch["lines"] = lines
