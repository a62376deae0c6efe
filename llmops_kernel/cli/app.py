"""The Typer application, and the decorator that registers a command."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Annotated, Any, TypeVar

import typer

from llmops_kernel.version import VERSION

C = TypeVar("C", bound=Callable[..., Any])

CLUSTERS, RUNS, CONFIGS, MACHINE = "Clusters", "Runs", "Configs", "This machine"
EXAMPLES: dict[str, str] = {}
"""Command -> the example in its help; a test runs each."""

app = typer.Typer(
    name="llmops",
    no_args_is_help=True,
    # `main` prints our errors; Typer's frames with local variables might show a secret.
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Example: llmops up && llmops submit lora.train.yaml --follow",
)


def _print_version(is_requested: bool) -> None:
    if is_requested:
        typer.echo(f"llmops {VERSION}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version and exit.", callback=_print_version, is_eager=True
        ),
    ] = False,
) -> None:
    """Fine-tune language models on a long-lived Ray cluster: up, submit, watch, compare, again."""


def command(panel: str, *, example: str, name: str | None = None) -> Callable[[C], C]:
    """Register a command; its help ends with the example."""

    def register(function: C) -> C:
        EXAMPLES[name or function.__name__] = example
        epilog = f"Example: {example}".replace("[", r"\[")
        return app.command(name, rich_help_panel=panel, epilog=epilog)(function)

    return register


def join_help_lines(group: typer.Typer) -> None:
    """Join the lines of each paragraph in the help of all commands.

    Typer does so for the first paragraph only, and breaks the lines of others twice.
    """
    for info in group.registered_commands:
        text = inspect.cleandoc(info.help or (info.callback and info.callback.__doc__) or "")
        info.help = re.sub(r"(?<=\S)\n(?=[^\s*-])", " ", text)
    for inner in group.registered_groups:
        if inner.typer_instance is not None:
            join_help_lines(inner.typer_instance)
