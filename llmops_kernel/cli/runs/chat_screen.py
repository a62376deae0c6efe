"""Growing answers in a terminal: side by side where it is wide, else below each other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from llmops_kernel.services.chat import LABELS, Turn
from llmops_kernel.views import format as fmt

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from llmops_kernel.services.types import ChatAnswer

WIDE = 100
"""Columns from which two answers fit side by side."""
_FINISH = {"length": "cut at --max-tokens", "cancelled": "stopped", "error": "error"}
_HINT = "Ctrl-C stops the answers"


def watch(turn: Turn, console: Console) -> None:
    """Show the answers while they grow, until the end; a pipe shows only what happens before."""
    if not console.is_terminal:
        _watch_lines(turn)
        return
    from rich.live import Live

    # Transient: the whole answers replace it, which may be longer than the screen.
    with Live(console=console, auto_refresh=False, transient=True) as live:
        for answers in turn.follow():
            live.update(_growing(turn, answers, console), refresh=True)


def _watch_lines(turn: Turn) -> None:
    """Print progress to stderr, so that a pipe gets only the answers."""
    from llmops_kernel.cli.console import out

    last_line = ""
    for _ in turn.follow():
        if turn.line and turn.line != last_line:
            last_line = turn.line
            out(stderr=True).print(last_line, markup=False)


def _growing(turn: Turn, answers: tuple[ChatAnswer, ...], console: Console) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    height = max(3, console.height - 6)
    hint = Text(turn.line or _HINT, style="dim")
    return Group(_side_by_side(answers, console, last_lines=height), hint)


def print_answers(turn: Turn, console: Console) -> None:
    """Print the whole answers with their speeds, warnings and errors."""
    from llmops_kernel.cli.console import out, plain

    answers = turn.answers
    if any(answer.text or answer.error for answer in answers):
        console.print(_side_by_side(answers, console))
    for message in turn.warnings:
        out(stderr=True).print(f"[yellow]{plain(message)}[/]")
    message, remedy = turn.failure
    if message:
        hint = f"\n  [bold]Try:[/] {plain(remedy)}" if remedy else ""
        out(stderr=True).print(f"[red]{plain(message)}[/]{hint}")


def _side_by_side(
    answers: tuple[ChatAnswer, ...], console: Console, *, last_lines: int | None = None
) -> RenderableType:
    from rich.console import Group
    from rich.table import Table

    if len(answers) < 2 or console.width < WIDE or not console.is_terminal:
        each = None if last_lines is None else max(1, last_lines // max(1, len(answers)) - 2)
        width = console.width
        return Group(*(_answer(answer, width=width, last_lines=each) for answer in answers))
    table = Table.grid(padding=(0, 2), expand=True)
    for _ in answers:
        table.add_column(ratio=1, overflow="fold")
    width = console.width // len(answers) - 2
    table.add_row(*(_answer(answer, width=width, last_lines=last_lines) for answer in answers))
    return table


def _answer(answer: ChatAnswer, *, width: int, last_lines: int | None) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    head = Text(LABELS.get(answer.model, answer.model), style="bold")
    head.append(f"  {speed(answer)}", style="dim")
    # Text, not markup: a model may write brackets.
    body = Text(_last(answer.text, width=width, lines=last_lines))
    parts = [head, body]
    if answer.error:
        remedy = f" Try: {answer.remedy}" if answer.remedy else ""
        parts.append(Text(f"{answer.error}{remedy}", style="red"))
    return Group(*parts, Text())


def _last(text: str, *, width: int, lines: int | None) -> str:
    """Return the end of a text that is longer than the screen: what is being written."""
    return text if lines is None else text[-max(1, width * lines) :] if text else ""


def speed(answer: ChatAnswer) -> str:
    """Return `24 tokens · 31.2 tokens/s · cut at --max-tokens`."""
    if not answer.output_tokens:
        return _FINISH.get(answer.finish, "…" if not answer.is_final else "")
    rate = answer.tokens_per_second
    parts = [
        f"{answer.output_tokens:,} tokens",
        "" if rate is None else f"{fmt.number(rate)} tokens/s",
        _FINISH.get(answer.finish, ""),
    ]
    return " · ".join(part for part in parts if part)
