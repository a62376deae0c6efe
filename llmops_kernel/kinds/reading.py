"""Read the config of a run of any kind: from a file, a text, values or a record."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from llmops_kernel.config.models.section import RunConfig
from llmops_kernel.config.reading.check import resolved, upgraded
from llmops_kernel.config.reading.document import Document, document_of, parse_yaml, read_yaml
from llmops_kernel.config.reading.shape import Overrides
from llmops_kernel.kinds.files import file_kind, run_kind_of, run_kind_of_config
from llmops_kernel.kinds.kind import RunKind, load_attribute
from llmops_kernel.kinds.registry import USUAL, kind_named

ConfigLike = RunConfig | Mapping[str, Any] | str | Path
"""A config, the values of a training config, or the path of a config file or a program."""


def kind_of(config: ConfigLike) -> RunKind:
    """Return the kind of run that this is submitted as; plain values are a training config."""
    if isinstance(config, RunConfig):
        return run_kind_of_config(config)
    return run_kind_of(config) if isinstance(config, str | Path) else kind_named(USUAL)


def load(config: ConfigLike, changes: Overrides, *, workspace: Path | None = None) -> Any:
    """Return the resolved config. Raises ConfigError with all mistakes at once.

    With a `workspace` those of the files that a wrong config names are among them.
    """
    kind = kind_of(config)
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
    program = kind.programs.get(path.suffix)
    if program is not None:
        values = load_attribute(program.config)(path, workspace or path.parent)
        return from_values(kind, values, overrides, workspace=workspace)
    file = file_kind(kind)
    document = read_yaml(path.expanduser(), remedy=file.remedy, siblings=file.globs[0])
    return _resolved(kind, document, overrides, workspace)


def from_text(
    kind: RunKind,
    text: str,
    overrides: Overrides = (),
    *,
    name: str,
    workspace: Path | None = None,
) -> Any:
    """Read a text; `name` is what error messages call it. Raises ConfigError."""
    document = parse_yaml(text, file=name, remedy=file_kind(kind).remedy)
    return _resolved(kind, document, overrides, workspace)


def from_values(
    kind: RunKind,
    values: Mapping[str, Any],
    overrides: Overrides = (),
    *,
    workspace: Path | None = None,
) -> Any:
    """Check plain data, such as a notebook's dict. Raises ConfigError."""
    return _resolved(kind, document_of(values), overrides, workspace)


def from_record(kind: RunKind, values: Mapping[str, Any], overrides: Overrides = ()) -> Any:
    """Check the config of a run's record, maybe of an earlier release. Raises ConfigError."""
    return from_values(kind, upgraded(file_kind(kind).model, values), overrides)


def _resolved(
    kind: RunKind, document: Document, overrides: Overrides, workspace: Path | None
) -> Any:
    file = file_kind(kind)
    return resolved(
        file.model,
        document,
        overrides,
        workspace=workspace,
        files=file.check_files,
        remedy=file.remedy,
    )
