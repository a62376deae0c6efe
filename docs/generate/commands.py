"""The page of the command line, from Typer's commands."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import groupby
from typing import Any

import typer

from docs.generate.markdown import table
from llmops_kernel.cli.app import CLUSTERS, CONFIGS, EXAMPLES, MACHINE, RUNS, app
from llmops_kernel.cli.main import main


def pages() -> dict[str, str]:
    """Return the page of all commands."""
    exits = re.search(r"Exit codes: .*?\n\n", main.__doc__ or "", re.DOTALL)
    about = " ".join(exits[0].split()) if exits else ""
    parts = ["# Command line", f"`llmops COMMAND --help` shows what this page shows. {about}"]
    for panel, commands in groupby(walk(), key=lambda entry: entry[0]):
        parts += [f"## {panel}", *(_section(path, command) for _, path, command in commands)]
    return {"reference/commands.md": "\n\n".join(parts) + "\n"}


def walk() -> Iterator[tuple[str, str, Any]]:
    """Yield panel, `llmops cluster init` and the command, for each that does something."""
    root: Any = typer.main.get_command(app)
    for panel in (CLUSTERS, RUNS, CONFIGS, MACHINE):
        inner = root.commands.items()
        waiting = [
            (f"llmops {name}", sub)
            for name, sub in inner
            if sub.rich_help_panel == panel and not sub.hidden
        ]
        while waiting:
            path, command = waiting.pop(0)
            if hasattr(command, "commands"):
                inner = command.commands.items()
                waiting[:0] = [(f"{path} {name}", sub) for name, sub in inner if not sub.hidden]
            else:
                yield panel, path, command


def _section(path: str, command: Any) -> str:
    context = typer.Context(command, info_name=path)
    usage = " ".join([path, *command.collect_usage_pieces(context)])
    example = EXAMPLES.get(path.removeprefix("llmops ")) or _epilog(command)
    rows = list(_parameters(command, context))
    return "\n\n".join(
        part
        for part in (
            f"### `{path}`",
            _plain(command.help or ""),
            f"```text\n{usage}\n```",
            f"Example:\n\n```bash\n{example}\n```" if example else "",
            table(("argument or option", "takes", "default", "what it does"), rows) if rows else "",
        )
        if part
    )


def _epilog(command: Any) -> str:
    return _plain(command.epilog or "").partition("Example: ")[2]


def _parameters(command: Any, context: Any) -> Iterator[tuple[str, str, str, str]]:
    for parameter in command.params:
        if getattr(parameter, "hidden", False) or parameter.name == "help":
            continue
        is_option = parameter.param_type_name == "option"
        names = [*parameter.opts, *parameter.secondary_opts] if is_option else [parameter.name]
        shown = ", ".join(f"`{name if is_option else name.upper()}`" for name in names)
        takes = "" if getattr(parameter, "is_flag", False) else _takes(parameter.type_descriptor)
        yield shown, takes, _default(parameter), _plain(getattr(parameter, "help", "") or "")


def _takes(kind: Any) -> str:
    """Return the choices of an argument or option, or the name of its type."""
    if kind.choices:
        return ", ".join(f"`{getattr(choice, 'value', choice)}`" for choice in kind.choices)
    names = {"str": "text", "int": "integer", "float": "number", "Path": "path", "bool": ""}
    words = re.findall(r"\w+", getattr(kind.annotation, "__name__", "") + f" {kind.annotation}")
    return next((names[word] for word in words if word in names), "")


def _default(parameter: Any) -> str:
    if parameter.required:
        return "*required*"
    default = parameter.default
    is_shown = isinstance(default, str | int | float) and not isinstance(default, bool)
    return f"`{default}`" if is_shown and default != "" else ""


def _plain(text: str) -> str:
    """Return a help text without Rich's escapes and marks."""
    text = re.sub(r"\[/?(?:bold|italic|dim|green|red|cyan|yellow)\]", "", text)
    return text.replace("\\[", "[").replace("\b\n", "").strip()
