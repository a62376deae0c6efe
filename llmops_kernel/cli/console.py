"""Printing for all commands: tables, names with values, JSON, errors, and slow progress."""

from __future__ import annotations

import json
import os
import re
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import typer

from llmops_kernel.errors import LLMOpsError, inert

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment
    from rich.status import Status
    from rich.table import Table
    from rich.text import Text

    from llmops_kernel.cli.fitting_table import FittingTable
    from llmops_kernel.services.types import ClusterInfo


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
    from rich.text import Text

    class InertConsole(Console):
        """Colours and cursor moves are ours; a text's own control characters do nothing.

        In a terminal a text is broken between words, and what is longer than a line, such as a
        path, stays whole. Further lines begin where the first one does.
        """

        def print(self, *objects: Any, **options: Any) -> None:
            text = objects[0] if len(objects) == 1 and not options.get("soft_wrap") else None
            if not self.is_terminal or not isinstance(text, str | Text):
                super().print(*objects, **options)
                return
            if isinstance(text, str):
                flags = {key: options.pop(key, None) for key in ("markup", "emoji")}
                text = self.render_str(text, highlight=False, **flags)
            super().print(_wrapped(text, self, margin=None), soft_wrap=True, **options)

        def render(
            self, renderable: RenderableType, options: ConsoleOptions | None = None
        ) -> Iterator[Segment]:
            for segment in super().render(renderable, options):
                text, style, control = segment
                safe = text if control else inert(text)
                yield segment if safe is text else Segment(safe, style)

    return InertConsole


def print_hanging(console: Console, markup: str, *, margin: int) -> None:
    """Print a line whose further lines in a narrow terminal begin at column `margin`."""
    text: str | Text = markup
    if console.is_terminal:
        text = _wrapped(console.render_str(markup, highlight=False), console, margin=margin)
    console.print(text, soft_wrap=True)


def _wrapped(text: Text, console: Console, *, margin: int | None) -> Text:
    """Return the text with line ends between words where the terminal has no space left.

    None as the margin: the blanks that a line begins with.
    """
    from rich.text import Text

    lines: list[Text] = []
    for line in text.split("\n", allow_blank=True):
        blanks = len(line.plain) - len(line.plain.lstrip(" "))
        margin_width = blanks if margin is None else margin
        margin_width = margin_width if margin_width <= console.width // 2 else 0
        head, body = line.divide([margin_width])
        for part in body.divide(_line_starts(body.plain, console.width - margin_width)):
            part.rstrip()  # A blank behind a full line would begin another one.
            lines.append(head + part)
            head = Text(" " * margin_width)
    return Text("\n").join(lines)


def _line_starts(text: str, width: int) -> list[int]:
    """Return where lines after the first begin, each with a word."""
    from rich.cells import cell_len

    starts, used = [], 0
    for word in re.finditer(r"\S+\s*", text):
        if used and used + cell_len(word[0].rstrip()) > width:
            starts.append(word.start())
            used = 0
        used += cell_len(word[0])
    return starts


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
        text = "".join(piece if _COLOURS.fullmatch(piece) else inert(piece) for piece in pieces)
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

    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in pairs.items():
        if value:
            grid.add_row(name, value)
    return grid


def print_json(value: Any) -> None:
    """Print JSON on stdout, whatever the terminal's width and colours."""
    sys.stdout.write(json.dumps(value, indent=2, default=str) + "\n")


def error_answer(kind: str, message: str, remedy: str) -> dict[str, Any]:
    """Return an error that is none of ours in the form of `LLMOpsError.to_dict`."""
    return {"error": {"kind": kind, "message": message, "remedy": remedy, "problems": []}}


def plain(text: str) -> str:
    """Escape text that is not ours, so that it can be put into markup."""
    from rich.markup import escape

    return escape(text)


def show_error(error: LLMOpsError) -> None:
    """Print message and remedy on stderr, without a traceback: it is not a bug."""
    console = out(stderr=True)
    console.print(f"[red]{plain(error.message)}[/]")
    if error.remedy:
        console.print(f"  [bold]Try:[/] {plain(error.remedy)}")


def show_unexpected(error: BaseException) -> None:
    """Print one line and where the traceback is saved; `LLMOPS_DEBUG=1` prints it."""
    text = "".join(traceback.format_exception(error))
    console = out(stderr=True)
    if os.environ.get("LLMOPS_DEBUG") == "1":
        console.print(text, markup=False, soft_wrap=True)
        return
    summary = f"{type(error).__name__}: {error}".strip().splitlines()[0]
    console.print(f"[red]Unexpected error: {plain(summary)}[/]")
    console.print(f"  {plain(_save_traceback(text))}")


def _save_traceback(text: str) -> str:
    from llmops_kernel.services.folders import home, private_folder

    path = home() / "logs" / f"llmops-{time.strftime('%y%m%d-%H%M%S')}-{os.getpid()}.log"
    try:
        private_folder(path.parent)
        path.write_text(f"{sys.argv}\n{text}", encoding="utf-8")
    except OSError as error:
        return f"the traceback could not be saved ({error}); LLMOPS_DEBUG=1 shows it"
    return f"the traceback is in {path}; LLMOPS_DEBUG=1 shows it"


# --- Progress of slow cluster operations in the terminal ---


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
