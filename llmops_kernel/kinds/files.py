"""Find the kind of a file or a config; each kind of run has its kind of config file."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import NoReturn

from llmops_kernel.config.assist.file_kinds import CLUSTER, Kind
from llmops_kernel.config.models.section import RunConfig
from llmops_kernel.config.problems import Problem, config_error, did_you_mean, listed
from llmops_kernel.errors import SubmissionError
from llmops_kernel.kinds.kind import Program, RunKind, load_attribute
from llmops_kernel.kinds.registry import USUAL, kind_named, kinds


def file_kinds() -> dict[str, Kind]:
    """Return all kinds of config files by name: those of runs, then cluster templates."""
    runs = [file_kind(kind) for kind in kinds() if kind.config_file]
    return {kind.name: kind for kind in (*runs, CLUSTER)}


def file_kind(kind: RunKind) -> Kind:
    """Return a kind's config files. Raises SubmissionError for a kind that is not known here."""
    if not kind.config_file:
        raise SubmissionError(
            f"This version of llmops-kernel cannot read the config of a {kind.name!r} run",
            remedy="install the version that submitted it: pip install --upgrade llmops-kernel",
        )
    files: Kind = load_attribute(kind.config_file)
    return files


def file_kind_of(path: str | Path) -> Kind | None:
    """Return the kind of a config file by its path; None for any other file."""
    return next((kind for kind in file_kinds().values() if kind.matches(path)), None)


def file_kind_named(name: str) -> Kind:
    """Return a kind of config file. Raises ConfigError for an unknown name."""
    known = file_kinds()
    return known[name] if name in known else _unknown(name, known)


def _unknown(name: str, known: Collection[str]) -> NoReturn:
    hint = did_you_mean(name, known) or f"known: {listed(known)}"
    problem = Problem(path="kind", message="no such kind of config", value=name, suggestion=hint)
    raise config_error([problem], remedy=f"name one of {listed(known)}")


def run_file_kind_named(name: str) -> Kind:
    """Return the config files of a kind of run. Raises ConfigError for an unknown name."""
    known = {kind.name: kind for kind in kinds() if kind.config_file}
    return file_kind(known[name]) if name in known else _unknown(name, known)


def run_kind_of(path: str | Path) -> RunKind:
    """Return the kind of run that a file is submitted as; the usual one for any other file."""
    suffix = Path(path).suffix
    matching = (
        kind
        for kind in kinds()
        if suffix in kind.programs or (kind.config_file and file_kind(kind).matches(path))
    )
    return next(matching, None) or kind_named(USUAL)


def program_of(path: str | Path) -> Program | None:
    """Return how a file is submitted that is a program; None for a config file."""
    return run_kind_of(path).programs.get(Path(path).suffix)


def run_kind_of_config(config: RunConfig) -> RunKind:
    """Return the kind of run that a config is of. Raises SubmissionError if no kind has it."""
    known = [(kind, file_kind(kind).model) for kind in kinds() if kind.config_file]
    exact = (kind for kind, model in known if type(config) is model)
    near = (kind for kind, model in known if isinstance(config, model))
    kind = next(exact, None) or next(near, None)
    if kind is None:
        raise SubmissionError(
            f"No kind of run has configs of class {type(config).__name__}",
            remedy=f"submit one of {listed(model.__name__ for _, model in known)}, or a file",
        )
    return kind
