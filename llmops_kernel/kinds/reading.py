"""Find the kind of a config and read it: from a file, a text, values or a record.

Each kind of run has its kind of config file; a program of the user's is read as a config too.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from llmops_kernel.config.assist.file_kinds import CLUSTER, Kind
from llmops_kernel.config.models.section import RunConfig
from llmops_kernel.config.problems import Problem, config_error, did_you_mean, listed
from llmops_kernel.config.reading.check import resolved, upgraded
from llmops_kernel.config.reading.document import Document, document_of, parse_yaml, read_yaml
from llmops_kernel.config.reading.shape import Overrides
from llmops_kernel.errors import SubmissionError
from llmops_kernel.kinds.kind import Program, RunKind, load_attribute
from llmops_kernel.kinds.registry import USUAL, kind_named, kinds

ConfigLike = RunConfig | Mapping[str, Any] | str | Path
"""A config, the values of a training config, or the path of a config file or a program."""


# --- Kinds of config files ---


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


# --- The kind of a config ---


def kind_of(config: ConfigLike) -> RunKind:
    """Return the kind of run that this is submitted as; plain values are a training config.

    Raises SubmissionError for a config of a class that no kind has.
    """
    if isinstance(config, RunConfig):
        return _kind_of_class(config)
    if isinstance(config, Mapping):
        return kind_named(USUAL)
    suffix = Path(config).suffix
    matching = (
        kind
        for kind in kinds()
        if suffix in kind.programs or (kind.config_file and file_kind(kind).matches(config))
    )
    return next(matching, None) or kind_named(USUAL)


def _kind_of_class(config: RunConfig) -> RunKind:
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


def program_of(path: str | Path, kind: RunKind | None = None) -> Program | None:
    """Return how a file is submitted that is a program; None for a config file."""
    return (kind or kind_of(path)).programs.get(Path(path).suffix)


def changes_in(words: Sequence[str], path: Path, kind: RunKind | None = None) -> Overrides:
    """Return the words behind a file on a command line as changes of its config.

    They are `section.field=value`, or a program's own arguments.
    """
    program = program_of(path, kind)
    return words if program is None else {program.arguments: tuple(words)}


# --- Reading ---


def load(
    config: ConfigLike,
    changes: Overrides,
    *,
    workspace: Path | None = None,
    kind: RunKind | None = None,
) -> Any:
    """Return the resolved config. Raises ConfigError with all mistakes at once.

    With a `workspace` those of the files that a wrong config names are among them. `kind` saves
    finding it again.
    """
    kind = kind or kind_of(config)
    if isinstance(config, str | Path):
        return from_path(kind, Path(config), changes, workspace=workspace)
    values = config.model_dump(mode="json") if isinstance(config, RunConfig) else config
    return from_values(kind, values, changes, workspace=workspace)


def combined(overrides: Overrides, settings: Mapping[str, Any]) -> Overrides:
    """Merge overrides and keywords; a keyword wins over an override of the same field."""
    if not settings:
        return overrides
    if not overrides:
        return settings
    if isinstance(overrides, Mapping):
        return {**overrides, **settings}
    # An override's value is read as YAML, and JSON is YAML.
    return [*overrides, *(f"{key}={json.dumps(value)}" for key, value in settings.items())]


def from_path(
    kind: RunKind, path: Path, overrides: Overrides = (), *, workspace: Path | None = None
) -> Any:
    """Read a config file, or make the config of a program. Raises ConfigError.

    `workspace` is what relative paths begin in; default the file's folder.
    """
    file, program = file_kind(kind), kind.programs.get(path.suffix)
    if program is None:
        document = read_yaml(path.expanduser(), remedy=file.remedy, siblings=file.globs[0])
    else:
        values = load_attribute(program.config)(path, workspace or path.parent)
        document = document_of(values)
    return _resolved(file, document, overrides, workspace)


def from_text(
    kind: RunKind,
    text: str,
    overrides: Overrides = (),
    *,
    name: str,
    workspace: Path | None = None,
) -> Any:
    """Read a text; `name` is what error messages call it. Raises ConfigError."""
    file = file_kind(kind)
    document = parse_yaml(text, file=name, remedy=file.remedy)
    return _resolved(file, document, overrides, workspace)


def from_values(
    kind: RunKind,
    values: Mapping[str, Any],
    overrides: Overrides = (),
    *,
    workspace: Path | None = None,
) -> Any:
    """Check plain data, such as a notebook's dict. Raises ConfigError."""
    return _resolved(file_kind(kind), document_of(values), overrides, workspace)


def from_record(kind: RunKind, values: Mapping[str, Any], overrides: Overrides = ()) -> Any:
    """Check the config of a run's record, maybe of an earlier release. Raises ConfigError."""
    return from_values(kind, upgraded(file_kind(kind).model, values), overrides)


def _resolved(file: Kind, document: Document, overrides: Overrides, workspace: Path | None) -> Any:
    return resolved(
        file.model,
        document,
        overrides,
        workspace=workspace,
        files=file.check_files,
        remedy=file.remedy,
    )
