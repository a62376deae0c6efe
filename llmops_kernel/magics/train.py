"""`%%train`: submits a run from a cell and shows its live panel."""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from llmops_kernel.config.problems import config_error
from llmops_kernel.config.reading.document import parse_yaml
from llmops_kernel.config.reading.shape import Overrides
from llmops_kernel.errors import LLMOpsError
from llmops_kernel.kinds.reading import changes_in, combined
from llmops_kernel.services.submission import from_config, from_text
from llmops_kernel.store.record import PRIORITIES

if TYPE_CHECKING:
    from llmops_kernel.api import Run
    from llmops_kernel.jobs.submit import Submission


def train(shell: Any, line: str, body: str) -> None:
    """Submit what a cell describes; the run is in a variable of the notebook afterwards.

    Raises MagicError.
    """
    options = parse(line)
    if options is None:
        return
    try:
        text = with_variables(body, shell.user_ns)
        submission = cell_submission(options.words, text).submission(options.workspace)
        if options.dry_run:
            print(_checked(submission))
            return
        request = replace(submission, strict=options.strict, priority=options.priority)
        run = _submitted(request, options.cluster)
        shell.user_ns[options.variable] = run
        _watch(run, options)
    except LLMOpsError as error:
        raise MagicError.of(error) from None


def _submitted(submission: Submission, cluster: str) -> Run:
    from llmops_kernel import api
    from llmops_kernel.api.environment import default_progress
    from llmops_kernel.services.submission import submit

    target = api.cluster(cluster)
    record = submit(target, submission, progress=default_progress())
    return api.attach(record.run_id)


def _watch(run: Run, options: argparse.Namespace) -> None:
    print(f"{options.variable} = run {run.id} on cluster {options.cluster}")
    if options.wait:
        run.wait()
    else:
        run.show()


def _checked(submission: Submission) -> str:
    """Return what a valid config does. Raises ConfigError for files that are missing."""
    from llmops_kernel.kinds.reading import file_kind

    if problems := submission.problems(submission.workspace):
        raise config_error(problems)
    return "\n".join(file_kind(submission.kind).effect(submission.config))


# --- Submissions of `%%train` with its cell: a whole config, or changes to a file ---


NAME = "this cell"
_VARIABLE = re.compile(r"\$([A-Za-z_]\w*)")
_CHANGE = re.compile(r"[\w.]+\s*=")


@dataclass(frozen=True, kw_only=True)
class CellSubmission:
    """A submission of `%%train`: a file with changes, or the text of the cell."""

    file: Path | None
    text: str = ""
    overrides: Overrides = ()

    def submission(self, workspace: Path | None) -> Submission:
        """Return it checked. Raises ConfigError with all mistakes."""
        if self.file is not None:
            return from_config(self.file, workspace=workspace, overrides=self.overrides)
        root = workspace or Path.cwd()
        return from_text(
            self.text, name=NAME, workspace=root, config_path=None, overrides=self.overrides
        )


def with_variables(body: str, variables: Mapping[str, Any]) -> str:
    """Return the cell with `$name` replaced by a text or a number of the notebook.

    IPython does so on the line of a magic, not in the cell below it. Other names stay as written.
    """

    def value(match: re.Match[str]) -> str:
        variable = variables.get(match[1])
        return str(variable) if isinstance(variable, str | int | float | Path) else match[0]

    return _VARIABLE.sub(value, body)


def cell_submission(arguments: Sequence[str], body: str) -> CellSubmission:
    """Return what is asked for. Raises MagicError, ConfigError for a cell that is no YAML."""
    lines = [line.strip() for line in body.splitlines()]
    statements = [line for line in lines if line and not line.startswith("#")]
    if arguments and not _CHANGE.match(arguments[0]):
        return _of_file(Path(arguments[0]).expanduser(), arguments[1:], statements, body)
    if not statements:
        raise MagicError(
            "There is nothing to train: no file and no config.",
            remedy="%train lora.train.yaml, or write a config below %%train",
        )
    if all(_CHANGE.match(line) for line in statements):
        raise MagicError(
            "The cell has changes, but names no config.",
            remedy=f"name a file: %%train lora.train.yaml {' '.join(arguments)}".rstrip(),
        )
    return CellSubmission(file=None, text=body, overrides=tuple(arguments))


def _of_file(
    path: Path, arguments: Sequence[str], statements: Sequence[str], body: str
) -> CellSubmission:
    """Return a file with the changes of the line and those of the cell, which win."""
    if all(_CHANGE.match(line) for line in statements):
        return CellSubmission(file=path, overrides=changes_in([*arguments, *statements], path))
    return CellSubmission(
        file=path, overrides=combined([*arguments], parse_yaml(body, file=NAME).data)
    )


# --- Arguments of `%%train`: a config file, changes and options ---


_DESCRIPTION = """\
Submit a run to a cluster and show its live panel.

The cell holds a whole training config in YAML:

  %%train
  model: SmolLM2-135M-Instruct
  data: data/train.jsonl

or, below a file, what is changed in it, one value a line:

  %%train lora.train.yaml --wait
  learning_rate=1e-4
  training.max_steps=20

`%train lora.train.yaml learning_rate=1e-4` is the same on one line. `$name` is a variable of the
notebook. The run is in the variable `run` afterwards.
"""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise MagicError(f"%%train: {message}", remedy="%train --help shows what it takes")


def parser() -> argparse.ArgumentParser:
    """Return the parser of the words behind `%%train`."""
    options = _Parser(
        prog="%%train",
        usage="%%%%train [FILE] [KEY=VALUE ...] [options]",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    options.add_argument(
        "words", nargs="*", metavar="FILE, KEY=VALUE",
        help="config or Python script to submit, and changes to the config",
    )  # fmt: skip
    options.add_argument("--cluster", default="local", help="name of the cluster (default: local)")
    options.add_argument(
        "--workspace", type=Path, help="folder to upload; default: the folder of the config"
    )
    options.add_argument("--wait", action="store_true", help="block until the run ends")
    options.add_argument(
        "--as", dest="variable", default="run", metavar="NAME",
        help="variable for the run (default: run)",
    )  # fmt: skip
    options.add_argument(
        "--dry-run", action="store_true", help="only check the config; nothing is started"
    )
    options.add_argument(
        "--strict", action="store_true",
        help="refuse a training whose plan does not fit in memory",
    )  # fmt: skip
    options.add_argument(
        "--priority", choices=PRIORITIES, default="normal",
        help="where it has to wait: high goes first, low gives way at its checkpoint",
    )  # fmt: skip
    return options


def parse(line: str) -> argparse.Namespace | None:
    """Return the options; None where help was asked for, which is printed. Raises MagicError."""
    try:
        arguments = shlex.split(line)
    except ValueError as error:
        raise MagicError(f"%%train: {error}".lower(), remedy="close the quotation mark") from None
    if {"-h", "--help"} & set(arguments):
        print(parser().format_help().rstrip())
        return None
    options = parser().parse_intermixed_args(arguments)
    if not options.variable.isidentifier():
        raise MagicError(
            f"{options.variable!r} cannot be the name of a variable.", remedy="%%train --as my_run"
        )
    return options


# --- An error of a magic: its message and what to do next, without a traceback of our code ---


_RED, _PLAIN = "\x1b[31m", "\x1b[0m"


class MagicError(Exception):
    """Fails the cell, so that papermill stops at it too; IPython prints no traceback of it."""

    def __init__(self, message: str, *, remedy: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy

    @classmethod
    def of(cls, error: LLMOpsError) -> MagicError:
        """Return the failure of a cell for an error of a run, a config or a cluster."""
        return cls(error.message, remedy=error.remedy)

    def _render_traceback_(self) -> list[str]:
        """Return the lines that IPython prints in place of a traceback."""
        first = f"{_RED}{self.message}{_PLAIN}"
        return [first, f"  Try: {self.remedy}"] if self.remedy else [first]
