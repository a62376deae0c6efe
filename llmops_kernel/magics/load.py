"""Registers the magics in an IPython shell."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import Any

from llmops_kernel.errors import LLMOpsError
from llmops_kernel.magics.train import MagicError, train

Complete = Callable[[list[str], str], list[str]]


def load(shell: Any) -> None:
    """Register `%train`, `%%train` and `%llmops` with their completion."""

    def train_magic(line: str, cell: str = "") -> None:
        train(shell, line, cell)

    def llmops_magic(line: str) -> None:
        command(line)

    train_magic.__doc__ = _help_of_train()
    llmops_magic.__doc__ = (
        "Run a command of `llmops` in this kernel: %llmops runs --limit 5\n\n"
        "%llmops --help lists the commands, %llmops COMMAND --help explains one."
    )
    shell.register_magic_function(train_magic, "line_cell", "train")
    shell.register_magic_function(llmops_magic, "line", "llmops")
    for key in ("%train", "%%train"):
        shell.set_hook("complete_command", _completer("of_train"), str_key=key)
    shell.set_hook("complete_command", _completer("of_command"), str_key="%llmops")


def unload(shell: Any) -> None:
    """Remove the magics; their completion finds nothing any more."""
    magics = shell.magics_manager.magics
    magics["line"].pop("train", None)
    magics["cell"].pop("train", None)
    magics["line"].pop("llmops", None)


def _help_of_train() -> str:
    from llmops_kernel.magics.train import parser

    return parser().format_help()


def _completer(name: str) -> Callable[[Any, Any], list[str]]:
    def complete(_shell: Any, event: Any) -> list[str]:
        from llmops_kernel.magics import complete as completion

        arguments = event.text_until_cursor.split()[1:]
        incomplete = (
            "" if event.text_until_cursor[-1:].isspace() else (arguments.pop() if arguments else "")
        )
        completions: list[str] = getattr(completion, name)(arguments, incomplete)
        return completions

    return complete


# --- `%llmops`: runs a command of the command line in this kernel ---


_ENDS = {3: "the run was stopped", 124: "the time is up", 130: "interrupted; the run continues"}


def command(line: str) -> None:
    """Run `llmops LINE` and print what it prints. Raises MagicError if it fails."""
    try:
        arguments = shlex.split(line)
    except ValueError as error:
        raise MagicError(f"%llmops: {error}".lower(), remedy="close the quotation mark") from None
    code = _exit_code(arguments or ["--help"])
    if code:
        shown_command = " ".join(["llmops", *arguments[:1]])
        raise MagicError(f"{shown_command}: {_ENDS.get(code, f'exit code {code}')}")


def _exit_code(arguments: list[str]) -> int:
    """Return 0 for success. Errors of ours are raised as MagicError, not printed."""
    import llmops_kernel.cli.main  # noqa: F401  (registers the commands)
    from llmops_kernel.cli.app import app

    try:
        app(args=arguments, prog_name="llmops")
    except LLMOpsError as error:
        raise MagicError.of(error) from None
    except SystemExit as leaving:
        return leaving.code if isinstance(leaving.code, int) else int(bool(leaving.code))
    return 0
