"""Entry point of `llmops`: registers the commands, prints errors, sets the exit code."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

import typer

# Importing these registers their commands.
from llmops_kernel.cli import (  # noqa: F401
    agents,
    bench,
    config_commands,
    data,
    machine_commands,
    metrics,
    schedule,
)
from llmops_kernel.cli.app import app, join_help_lines
from llmops_kernel.cli.clusters import actions, group  # noqa: F401
from llmops_kernel.cli.clusters import commands as cluster_commands  # noqa: F401
from llmops_kernel.cli.console import error_answer, print_json, show_error, show_unexpected
from llmops_kernel.cli.runs import again, chat, export, listing, project, submit  # noqa: F401
from llmops_kernel.cli.runs import commands as run_commands  # noqa: F401
from llmops_kernel.errors import LLMOpsError

if TYPE_CHECKING:
    from llmops_kernel.services.backend import Backend

join_help_lines(app)


def main(arguments: Sequence[str] | None = None, *, backend: Backend | None = None) -> None:
    """Run a command. With `--json` errors are JSON too, as `llmops schema --of error` says.

    Exit codes: 0 success, 1 an error or a failed run, 2 wrong usage, 3 a stopped run, 124 a
    timeout, 130 Ctrl-C.

    `backend` is the run store and the providers that it works with; default: the user's.
    """
    words = sys.argv[1:] if arguments is None else arguments
    as_json = "--json" in itertools.takewhile(lambda word: word != "--", words)
    try:
        with _using(backend):
            code = app(args=arguments, prog_name="llmops", standalone_mode=not as_json)
            sys.exit(code if isinstance(code, int) else 0)
    except LLMOpsError as error:
        if as_json:
            print_json(error.to_dict())
        else:
            show_error(error)
        sys.exit(1)
    except typer.Abort:
        print_json(error_answer("Abort", "Nothing was confirmed.", "--yes, where it is meant"))
        sys.exit(1)
    except Exception as error:
        # Wrong usage: only with `--json` does Typer leave it to us.
        format_message: Callable[[], str] | None = getattr(error, "format_message", None)
        if format_message is not None:
            print_json(error_answer("UsageError", format_message(), "llmops COMMAND --help"))
            sys.exit(getattr(error, "exit_code", 2))
        if as_json:
            name = type(error).__name__
            print_json(error_answer(name, str(error), "LLMOPS_DEBUG=1 shows the traceback"))
        show_unexpected(error)
        sys.exit(1)


def _using(backend: Backend | None) -> AbstractContextManager[None]:
    if backend is None:
        return nullcontext()
    from llmops_kernel.services.backend import use

    return use(backend)


if __name__ == "__main__":
    main()
