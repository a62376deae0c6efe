"""Entry point of `llmops`: registers the commands, prints errors, sets the exit code."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

# Importing these registers their commands.
from llmops_kernel.cli import bench, config_commands, data, machine_commands  # noqa: F401
from llmops_kernel.cli.app import app, join_help_lines
from llmops_kernel.cli.clusters import actions, group  # noqa: F401
from llmops_kernel.cli.clusters import commands as cluster_commands  # noqa: F401
from llmops_kernel.cli.console import show_error, show_unexpected
from llmops_kernel.cli.runs import chat, export, listing, submit  # noqa: F401
from llmops_kernel.cli.runs import commands as run_commands  # noqa: F401
from llmops_kernel.errors import LLMOpsError

if TYPE_CHECKING:
    from llmops_kernel.services.backend import Backend

join_help_lines(app)


def main(arguments: Sequence[str] | None = None, *, backend: Backend | None = None) -> None:
    """Run a command.

    Exit codes: 0 success, 1 an error or a failed run, 2 wrong usage, 3 a stopped run, 124 a
    timeout, 130 Ctrl-C.

    `backend` is the run store and the providers that it works with; default: the user's.
    """
    try:
        with _using(backend):
            app(args=arguments, prog_name="llmops")
    except LLMOpsError as error:
        show_error(error)
        sys.exit(1)
    except Exception as error:
        show_unexpected(error)
        sys.exit(1)


def _using(backend: Backend | None) -> AbstractContextManager[None]:
    if backend is None:
        return nullcontext()
    from llmops_kernel.services.backend import use

    return use(backend)


if __name__ == "__main__":
    main()
