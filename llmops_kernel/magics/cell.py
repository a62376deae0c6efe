"""What `%%train` and the cell below it say: a whole config, or changes to a file's."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from llmops_kernel.config.reading.overrides import Overrides
from llmops_kernel.config.reading.yaml_source import parse_yaml
from llmops_kernel.kinds.reading import combined
from llmops_kernel.magics.failure import MagicError
from llmops_kernel.services.submission import (
    Submission,
    changes_in,
    from_config,
    from_text,
)

NAME = "this cell"
_VARIABLE = re.compile(r"\$([A-Za-z_]\w*)")
_CHANGE = re.compile(r"[\w.]+\s*=")


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What is to be submitted: a file with changes, or the text of the cell."""

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

    def value(found: re.Match[str]) -> str:
        known = variables.get(found[1])
        return str(known) if isinstance(known, str | int | float | Path) else found[0]

    return _VARIABLE.sub(value, body)


def wanted(words: Sequence[str], body: str) -> Wanted:
    """Return what is asked for. Raises MagicError, ConfigError for a cell that is no YAML."""
    lines = [line.strip() for line in body.splitlines()]
    said = [line for line in lines if line and not line.startswith("#")]
    if words and not _CHANGE.match(words[0]):
        return _of_file(Path(words[0]).expanduser(), words[1:], said, body)
    if not said:
        raise MagicError(
            "There is nothing to train: no file and no config.",
            remedy="%train lora.train.yaml, or write a config below %%train",
        )
    if all(_CHANGE.match(line) for line in said):
        raise MagicError(
            "The cell has changes, but names no config.",
            remedy=f"name a file: %%train lora.train.yaml {' '.join(words)}".rstrip(),
        )
    return Wanted(file=None, text=body, overrides=tuple(words))


def _of_file(path: Path, words: Sequence[str], said: Sequence[str], body: str) -> Wanted:
    """Return a file with the changes of the line and those of the cell, which win."""
    if all(_CHANGE.match(line) for line in said):
        return Wanted(file=path, overrides=changes_in([*words, *said], path))
    return Wanted(file=path, overrides=combined([*words], parse_yaml(body, file=NAME).data))
