"""What every command prints with: tables, key-value blocks, JSON and errors."""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from llmops_kernel.errors import LLMOpsError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

PIPE_WIDTH = 200
"""Columns where there is no terminal to ask: wide enough that no table loses a word."""
STATE_COLORS = {
    "READY": "green",
    "SUCCEEDED": "green",
    "RUNNING": "cyan",
    "STARTING": "yellow",
    "PENDING": "yellow",
    "STOPPING": "yellow",
    "STOPPED": "yellow",
    "FAILED": "red",
    "DEAD": "red",
}


def out(*, stderr: bool = False) -> Console:
    """A console on stdout, or stderr for what is no result."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() or os.environ.get("COLUMNS") else PIPE_WIDTH
    return Console(stderr=stderr, highlight=False, width=width)


def state(text: str) -> str:
    """A state as markup, in its colour."""
    word = str(text).upper()
    return f"[{STATE_COLORS.get(word, 'white')}]{word}[/]"


def table(
    columns: Sequence[str], rows: Iterable[Sequence[str]], *, right: Sequence[str] = ()
) -> Table:
    """A plain table; columns named in `right` are numbers."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    made = Table(box=SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for column in columns:
        made.add_column(column, justify="right" if column in right else "left", overflow="fold")
    for row in rows:
        made.add_row(*row)
    return made


def facts(pairs: Mapping[str, str]) -> Table:
    """Names and values below each other, without a frame; values are rich markup."""
    from rich.table import Table

    made = Table.grid(padding=(0, 2))
    made.add_column(style="dim", no_wrap=True)
    made.add_column(overflow="fold")
    for name, value in pairs.items():
        if value:
            made.add_row(name, value)
    return made


def print_json(value: Any) -> None:
    """JSON on stdout, untouched by terminal width or colours."""
    sys.stdout.write(json.dumps(value, indent=2, default=str) + "\n")


def plain(text: str) -> str:
    """Text that came from elsewhere, safe to put into markup."""
    from rich.markup import escape

    return escape(text)


def show_error(error: LLMOpsError) -> None:
    """Message and remedy in red on stderr; no traceback: it is not our bug."""
    console = out(stderr=True)
    console.print(f"[red]{plain(error.message)}[/]", soft_wrap=True)
    if error.remedy:
        console.print(f"  [bold]Try:[/] {plain(error.remedy)}", soft_wrap=True)


def show_unexpected(error: BaseException) -> None:
    """One line, and where the traceback lies; `LLMOPS_DEBUG=1` prints it."""
    text = "".join(traceback.format_exception(error))
    console = out(stderr=True)
    if os.environ.get("LLMOPS_DEBUG") == "1":
        console.print(text, markup=False, soft_wrap=True)
        return
    what = f"{type(error).__name__}: {error}".strip().splitlines()[0]
    console.print(f"[red]Unexpected error: {plain(what)}[/]", soft_wrap=True)
    console.print(f"  {plain(_save_traceback(text))}", soft_wrap=True)


def _save_traceback(text: str) -> str:
    from llmops_kernel.runs.paths import home

    path = home() / "logs" / f"llmops-{time.strftime('%y%m%d-%H%M%S')}-{os.getpid()}.log"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{sys.argv}\n{text}", encoding="utf-8")
    except OSError as error:
        return f"the traceback could not be saved ({error}); LLMOPS_DEBUG=1 shows it"
    return f"the traceback is in {path}; LLMOPS_DEBUG=1 shows it"
