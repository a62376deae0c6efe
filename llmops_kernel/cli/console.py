"""Printing for all commands: tables, names with values, JSON and errors."""

from __future__ import annotations

import json
import os
import re
import sys
import time
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import typer

from llmops_kernel.errors import LLMOpsError, inert

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment
    from rich.table import Table

    from llmops_kernel.cli.fitting_table import FittingTable

PIPE_WIDTH = 100_000
"""Width of files and pipes: nothing is folded or cut there, so that paths can be copied."""
_COLOURS = re.compile(r"(\x1b\[[0-9;]*m|\r)")
"""What programs write to a terminal all the time: colours, and progress bars that begin anew."""
STATE_COLORS = {
    "READY": "green",
    "SUCCEEDED": "green",
    "RUNNING": "cyan",
    "STARTING": "yellow",
    "PENDING": "yellow",
    "QUEUED": "yellow",
    "RESTARTING": "yellow",
    "STOPPING": "yellow",
    "STOPPED": "yellow",
    "FAILED": "red",
    "DEAD": "red",
}


@cache
def _console_class() -> type[Console]:
    from rich.console import Console
    from rich.segment import Segment

    class InertConsole(Console):
        """Colours and cursor moves are ours; a text's own control characters do nothing."""

        def render(
            self, renderable: RenderableType, options: ConsoleOptions | None = None
        ) -> Iterator[Segment]:
            for segment in super().render(renderable, options):
                text, style, control = segment
                safe = text if control else inert(text)
                yield segment if safe is text else Segment(safe, style)

    return InertConsole


def out(*, stderr: bool = False) -> Console:
    """Return a console on stdout, or on stderr for progress and errors.

    This is where texts that are not ours reach a terminal: answers, rows, errors, logs.
    """
    stream = sys.stderr if stderr else sys.stdout
    # Rich would take COLUMNS, which shells and CI also set for what goes into a file.
    width = None if stream.isatty() else PIPE_WIDTH
    return _console_class()(stderr=stderr, highlight=False, width=width)


def echo(text: str, *, nl: bool = True) -> None:
    """Print text as it is, not folded and not as markup; it does nothing to a terminal.

    A file or a pipe gets every byte.
    """
    typer.echo(inert(text) if sys.stdout.isatty() else text, nl=nl)


def echo_log(text: str) -> None:
    """Print what a run's processes wrote; of its escape sequences, a terminal gets colours only."""
    if not text:
        return
    if sys.stdout.isatty():
        pieces = _COLOURS.split(text.replace("\r\n", "\n"))
        text = "".join(one if _COLOURS.fullmatch(one) else inert(one) for one in pieces)
    typer.echo(text, nl=not text.endswith("\n"))


def state(text: str) -> str:
    """Return a state as markup, in its colour."""
    word = str(text).upper()
    return f"[{STATE_COLORS.get(word, 'white')}]{word}[/]"


def table(
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    right: Sequence[str] = (),
    optional: Sequence[str] = (),
    whole: Sequence[str] = (),
    split: bool = False,
) -> FittingTable:
    """Return a plain table; columns named in `right` are numbers.

    In a narrow terminal the `optional` columns are left out, in that order; those in `whole` are
    not folded; `split` prints
    several tables below each other, each with the first column.
    """
    from llmops_kernel.cli.fitting_table import FittingTable

    return FittingTable(columns, rows, right=right, optional=optional, whole=whole, split=split)


def facts(pairs: Mapping[str, str]) -> Table:
    """Return names and values, one pair a line; values are rich markup."""
    from rich.table import Table

    made = Table.grid(padding=(0, 2))
    made.add_column(style="dim", no_wrap=True)
    made.add_column(overflow="fold")
    for name, value in pairs.items():
        if value:
            made.add_row(name, value)
    return made


def print_json(value: Any) -> None:
    """Print JSON on stdout, whatever the terminal's width and colours."""
    sys.stdout.write(json.dumps(value, indent=2, default=str) + "\n")


def plain(text: str) -> str:
    """Escape text that is not ours, so that it can be put into markup."""
    from rich.markup import escape

    return escape(text)


def show_error(error: LLMOpsError) -> None:
    """Print message and remedy on stderr, without a traceback: it is not a bug."""
    console = out(stderr=True)
    console.print(f"[red]{plain(error.message)}[/]", soft_wrap=True)
    if error.remedy:
        console.print(f"  [bold]Try:[/] {plain(error.remedy)}", soft_wrap=True)


def show_unexpected(error: BaseException) -> None:
    """Print one line and where the traceback is saved; `LLMOPS_DEBUG=1` prints it."""
    text = "".join(traceback.format_exception(error))
    console = out(stderr=True)
    if os.environ.get("LLMOPS_DEBUG") == "1":
        console.print(text, markup=False, soft_wrap=True)
        return
    what = f"{type(error).__name__}: {error}".strip().splitlines()[0]
    console.print(f"[red]Unexpected error: {plain(what)}[/]", soft_wrap=True)
    console.print(f"  {plain(_save_traceback(text))}", soft_wrap=True)


def _save_traceback(text: str) -> str:
    from llmops_kernel.services.folders import home, private_folder

    path = home() / "logs" / f"llmops-{time.strftime('%y%m%d-%H%M%S')}-{os.getpid()}.log"
    try:
        private_folder(path.parent)
        path.write_text(f"{sys.argv}\n{text}", encoding="utf-8")
    except OSError as error:
        return f"the traceback could not be saved ({error}); LLMOPS_DEBUG=1 shows it"
    return f"the traceback is in {path}; LLMOPS_DEBUG=1 shows it"
