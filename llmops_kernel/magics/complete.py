"""Completion behind `%llmops` and `%%train`: names on disk, commands and options."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from llmops_kernel.services.names import cluster_names

_CONFIGS = ("*.train.yaml", "*.script.yaml", "*.train.yml", "*.py")


def of_train(arguments: list[str], incomplete: str) -> list[str]:
    """Return what may follow `%%train`: configs of this folder, options, names of clusters."""
    from llmops_kernel.magics.train import parser

    if arguments[-1:] == ["--cluster"]:
        return _beginning(incomplete, cluster_names())
    if incomplete.startswith("-"):
        return _beginning(incomplete, (o for a in parser()._actions for o in a.option_strings))
    names = (path.name for pattern in _CONFIGS for path in Path.cwd().glob(pattern))
    return _beginning(incomplete, sorted(names))


def of_command(arguments: list[str], incomplete: str) -> list[str]:
    """Return what may follow `%llmops`: commands, then their options, runs and clusters."""
    import typer

    import llmops_kernel.cli.main  # noqa: F401  (registers the commands)
    from llmops_kernel.cli.app import app

    command: Any = typer.main.get_command(app)
    for argument in arguments:
        command = getattr(command, "commands", {}).get(argument, command)
    inner = getattr(command, "commands", None)
    if inner and not incomplete.startswith("-"):
        return _beginning(incomplete, inner)
    context = typer.Context(command)
    named_options = [
        parameter for parameter in command.params if arguments and arguments[-1] in parameter.opts
    ]
    if not named_options and incomplete.startswith("-"):
        return _beginning(incomplete, (o for parameter in command.params for o in parameter.opts))
    parameters = named_options or [
        parameter for parameter in command.params if parameter.param_type_name == "argument"
    ]
    return [
        item.value
        for parameter in parameters
        for item in parameter.shell_complete(context, incomplete)
    ]


def _beginning(incomplete: str, names: Iterable[str]) -> list[str]:
    return [name for name in names if name.startswith(incomplete) and name != "--help"] or (
        ["--help"] if incomplete and "--help".startswith(incomplete) else []
    )
