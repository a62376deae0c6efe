"""`llmops check`: reports the problems of each file, as readable text or as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from llmops_kernel.cli.console import echo, facts, out, plain
from llmops_kernel.config.assist.diagnose import Examined, examine
from llmops_kernel.config.assist.file_kinds import TRAIN, Kind
from llmops_kernel.config.counted import counted
from llmops_kernel.config.problems import Problem, ordered
from llmops_kernel.config.reading.document import read_text
from llmops_kernel.errors import ConfigError
from llmops_kernel.services.check import CloseCheck, check_closely
from llmops_kernel.services.configs import file_kind_of


@dataclass(frozen=True)
class FileCheck:
    """The problems of one file, and its resolved values if there are none."""

    file: str
    problems: list[Problem]
    warnings: list[Problem] = field(default_factory=list)
    effect: list[str] = field(default_factory=list)
    facts: dict[str, str] = field(default_factory=dict)
    """The effect in a few words, by label; empty: the effect's lines are shown."""
    config: Any = None
    checked: list[str] = field(default_factory=list)
    """What was tried, and what could not be."""

    @property
    def is_valid(self) -> bool:
        return not self.problems

    def to_dict(self) -> dict[str, Any]:
        return {
            "file": self.file,
            "valid": self.is_valid,
            "problems": [problem.to_dict() for problem in self.problems],
            "warnings": [problem.to_dict() for problem in self.warnings],
            "effect": self.effect,
            "checked": self.checked,
        }


def check_all(
    paths: Sequence[Path],
    overrides: Sequence[str],
    *,
    workspace: Path | None,
    quick: bool = False,
) -> list[FileCheck]:
    """Check each file with the files it names; relative paths start at `workspace`.

    Unless `quick` also by using what a training config names: some rows, the tokenizer, the hub,
    in a process of its own.
    """
    return [_check(path, overrides, workspace, quick=quick) for path in paths]


def _check(
    path: Path, overrides: Sequence[str], workspace: Path | None, *, quick: bool
) -> FileCheck:
    kind = file_kind_of(path) or TRAIN
    try:
        text = read_text(path.expanduser(), siblings=kind.globs[0])
    except ConfigError as error:
        return FileCheck(str(path), list(error.problems))
    folder = workspace or path.absolute().parent
    examined = examine(
        kind,
        text,
        path=str(path),
        folder=folder,
        with_files=True,
        overrides=overrides,
        name=str(path),
    )
    closely = CloseCheck() if quick or examined.config is None else _closely(path, examined, folder)
    return _result(path, kind, examined, closely)


def _closely(path: Path, examined: Examined, folder: Path) -> CloseCheck:
    with out(stderr=True).status(f"Checking {plain(str(path))} ...") as status:
        return check_closely(
            examined.config,
            folder,
            problems=examined.problems,
            progress=lambda text: status.update(f"{plain(text)} ..."),
        )


def _result(path: Path, kind: Kind, examined: Examined, closely: CloseCheck) -> FileCheck:
    problems = ordered(map(examined.placed, [*examined.problems, *closely.problems]))
    warnings = [*map(examined.placed, [*examined.warnings, *closely.warnings])]
    if problems or examined.config is None:
        return FileCheck(str(path), problems, warnings, checked=closely.notes)
    config = examined.config
    return FileCheck(
        str(path),
        [],
        warnings,
        kind.effect(config),
        kind.facts(config) if kind.facts else {},
        config=config,
        checked=closely.notes,
    )


def report(checks: Sequence[FileCheck], *, as_json: bool) -> None:
    """Print valid files to stdout, problems and warnings to stderr; with `as_json` one object."""
    if as_json:
        valid = all(check.is_valid for check in checks)
        answer = {"valid": valid, "files": [check.to_dict() for check in checks]}
        echo(json.dumps(answer, indent=2))
        return
    for check in checks:
        _print(check)


def _print(check: FileCheck) -> None:
    stderr = out(stderr=True)
    for problem in check.problems:
        stderr.print(plain(str(problem)), style="red")
    for warning in check.warnings:
        stderr.print(plain(_warning(warning, check.file)), style="yellow")
    if check.problems:
        counts = " and ".join([counted(len(check.problems), "problem"), *_num_warnings(check)])
        stderr.print(f"{plain(check.file)} has {counts}. Nothing was started.")
        return
    out().print(facts(_facts(check)))


def _warning(warning: Problem, file: str) -> str:
    """Return `x.train.yaml:4: warning: data.train: ...`: a pipe has no colours."""
    path = f"warning: {warning.path}" if warning.path else "warning"
    return str(replace(warning, file=warning.file or file, path=path))


def _num_warnings(check: FileCheck) -> list[str]:
    return [counted(len(check.warnings), "warning")] if check.warnings else []


def _facts(check: FileCheck) -> dict[str, str]:
    lines = check.facts or {"effect": "\n".join(check.effect)}
    warned = "".join(f", with {text}" for text in _num_warnings(check))
    pairs = {"config": f"{plain(check.file)} is [green]valid[/]{warned}"}
    if check.checked:
        lines = lines | {"checked": "\n".join(check.checked)}
    return pairs | {label: plain(value) for label, value in lines.items()}
