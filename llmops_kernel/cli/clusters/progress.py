"""Progress of slow cluster operations in the terminal."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from llmops_kernel.cli.console import out, plain

if TYPE_CHECKING:
    from rich.console import Console
    from rich.status import Status

    from llmops_kernel.services.types import ClusterInfo

_COUNTS_S = 3.0


def bring_up(template: str, *, wait: bool = True) -> ClusterInfo:
    """Start or attach to a cluster and show progress; Ctrl-C only stops the waiting."""
    from llmops_kernel.services.clusters import read_template, up

    loaded, path = read_template(template)
    console = out(stderr=True)
    try:
        with console.status(f"Starting cluster {plain(loaded.name)} ...") as line:
            return up(loaded, path=path, wait=wait, progress=progress_on(console, line))
    except KeyboardInterrupt:
        if loaded.provider != "local":
            console.print(
                f"Stopped waiting. The cluster keeps starting: llmops status {loaded.name}"
            )
        raise


def progress_on(console: Console, line: Status) -> Callable[[str], None]:
    """Return a function that moves the status line of a terminal.

    Elsewhere, as in CI, it prints a line for each text that is new.
    """
    last_text = ""

    def report(text: str) -> None:
        nonlocal last_text
        if console.is_terminal:
            line.update(_Counting(text))
        elif text != last_text:
            last_text = text
            console.print(plain(text))

    return report


class _Counting:
    """A line of a terminal that ends with how long it has been shown, once that is seconds."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._began_s = time.monotonic()

    def __rich__(self) -> str:
        passed_s = time.monotonic() - self._began_s
        return plain(self._text) + (f" +{passed_s:.0f} s" if passed_s >= _COUNTS_S else "")
