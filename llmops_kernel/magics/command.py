"""`%llmops`: runs a command of the command line in this kernel."""

from __future__ import annotations

import shlex

from llmops_kernel.errors import LLMOpsError
from llmops_kernel.magics.failure import MagicError

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
