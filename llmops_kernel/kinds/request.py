"""A client's request to submit a run: a kind, a name and a resolved config."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from llmops_kernel.config.models.section import Section
from llmops_kernel.config.problems import Problem, no_such_file
from llmops_kernel.config.reading.document import dump
from llmops_kernel.kinds.files import file_kind
from llmops_kernel.kinds.registry import kind_named


def no_problems(_: Path) -> list[Problem]:
    return []


@dataclass(frozen=True, kw_only=True)
class RunRequest:
    """Everything of a run that its kind decides; independent of cluster and workspace."""

    kind: str
    name: str
    """The run id begins with it."""
    config: Mapping[str, Any]
    """Resolved, JSON-able; what the driver gets."""
    config_yaml: str
    """The same as text, kept in the run's folder."""
    check: Callable[[Path], list[Problem]] = no_problems
    """Return what is wrong with the workspace's files that the config names."""


def request_of(config: Section, *, name: str, kind: str = "train") -> RunRequest:
    """Return the request of a validated config, with its kind's check of files."""
    files = file_kind(kind_named(kind)).check_files
    wanted = getattr(config, "requirements", None)
    values = config.model_dump(mode="json")
    return RunRequest(
        kind=kind,
        name=name,
        config=values,
        config_yaml=dump(values),
        check=lambda folder: [*files(config, folder), *_check_requirements(wanted, folder)],
    )


def _check_requirements(name: str | None, folder: Path) -> list[Problem]:
    if not name or (folder / name).is_file():
        return []
    names = [str(file.relative_to(folder)) for file in sorted(folder.glob("*.txt"))]
    return [no_such_file("requirements", name, folder, names)]
