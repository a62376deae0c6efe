"""The Typer application, and how a command joins it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import typer

C = TypeVar("C", bound=Callable[..., Any])

CLUSTERS, RUNS, CONFIGS, MACHINE = "Clusters", "Runs", "Configs", "This machine"
EXAMPLES: dict[str, str] = {}
"""Command -> the example in its help; a test tries each."""

app = typer.Typer(
    name="llmops",
    no_args_is_help=True,
    add_completion=False,
    # Our errors are told by `main`; Typer's frames with local variables might show a secret.
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Example: llmops up && llmops submit lora.train.yaml --follow",
)


@app.callback()
def _root() -> None:
    """Fine-tune language models on a long-lived Ray cluster: up, submit, watch, compare, again."""


def command(panel: str, *, example: str, name: str | None = None) -> Callable[[C], C]:
    """Register a command; its help ends with the example."""

    def register(function: C) -> C:
        EXAMPLES[name or function.__name__] = example
        epilog = f"Example: {example}".replace("[", r"\[")
        return app.command(name, rich_help_panel=panel, epilog=epilog)(function)

    return register
