"""What stands after `%%train`: a config file, changes and options."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path
from typing import NoReturn

from llmops_kernel.magics.failure import MagicError

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
    made = _Parser(
        prog="%%train",
        usage="%%%%train [FILE] [KEY=VALUE ...] [options]",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    made.add_argument(
        "words", nargs="*", metavar="FILE, KEY=VALUE",
        help="config or Python script to submit, and changes to the config",
    )  # fmt: skip
    made.add_argument("--cluster", default="local", help="name of the cluster (default: local)")
    made.add_argument(
        "--workspace", type=Path, help="folder to upload; default: the folder of the config"
    )
    made.add_argument("--wait", action="store_true", help="block until the run ends")
    made.add_argument(
        "--as", dest="variable", default="run", metavar="NAME",
        help="variable for the run (default: run)",
    )  # fmt: skip
    made.add_argument(
        "--dry-run", action="store_true", help="only check the config; nothing is started"
    )
    return made


def parse(line: str) -> argparse.Namespace | None:
    """Return the options; None where help was asked for, which is printed. Raises MagicError."""
    try:
        words = shlex.split(line)
    except ValueError as error:
        raise MagicError(f"%%train: {error}".lower(), remedy="close the quotation mark") from None
    if {"-h", "--help"} & set(words):
        print(parser().format_help().rstrip())
        return None
    options = parser().parse_intermixed_args(words)
    if not options.variable.isidentifier():
        raise MagicError(
            f"{options.variable!r} cannot be the name of a variable.", remedy="%%train --as my_run"
        )
    return options
