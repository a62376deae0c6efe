"""Entry point of `llmops`: registers the commands, tells errors, sets the exit code."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from llmops_kernel.cli import (  # noqa: F401  (importing registers the commands)
    bench_commands,
    cluster_actions,
    cluster_commands,
    cluster_group,
    config_commands,
    guard_commands,
    machine_commands,
    note_commands,
    run_commands,
    submit_commands,
)
from llmops_kernel.cli.app import app
from llmops_kernel.cli.console import show_error, show_unexpected
from llmops_kernel.errors import LLMOpsError


def main(arguments: Sequence[str] | None = None) -> None:
    """Exit code 0 is success, 1 an error, 2 wrong usage, 130 Ctrl-C."""
    try:
        app(args=arguments, prog_name="llmops")
    except LLMOpsError as error:
        show_error(error)
        sys.exit(1)
    except Exception as error:
        show_unexpected(error)
        sys.exit(1)


if __name__ == "__main__":
    main()
