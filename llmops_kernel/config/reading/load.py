"""Load configs: a file, a text or plain data, with overrides; all problems at once."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol, TypeVar

from pydantic import ValidationError

from llmops_kernel.config.models.section import Section
from llmops_kernel.config.models.train import TrainingConfig
from llmops_kernel.config.problems import ABSENT, Problem, config_error, unique
from llmops_kernel.config.reading.check import check
from llmops_kernel.config.reading.document import Document, document_of, dump, parse_yaml, read_yaml
from llmops_kernel.config.reading.files import check_files
from llmops_kernel.config.reading.overrides import Overrides, apply_overrides

__all__ = [
    "ABSENT",
    "Problem",
    "check_files",
    "dump_yaml",
    "flatten",
    "load_training_config",
    "training_config_from_dict",
    "training_config_from_text",
]

M = TypeVar("M", bound=Section)
PATTERN = "*.train.yaml"
REMEDY = "`llmops init` writes a config with every field explained"


class FileCheck(Protocol):
    """Checks the files that a config names, except what depends on `wrong` fields."""

    def __call__(
        self, config: Any, folder: Path, /, *, wrong: Collection[str] = ()
    ) -> list[Problem]: ...


def load_training_config(
    path: Path | str, overrides: Overrides = (), *, workspace: Path | None = None
) -> TrainingConfig:
    """Read, override and check a file. Raises ConfigError with all problems.

    With a `workspace` the problems of a wrong config include those of the files it names.
    """
    document = read_yaml(Path(path).expanduser(), remedy=REMEDY, siblings=PATTERN)
    return _training_config(document, overrides, workspace)


def training_config_from_text(
    text: str,
    overrides: Overrides = (),
    *,
    name: str = "the text",
    workspace: Path | None = None,
) -> TrainingConfig:
    """Like `load_training_config` for a YAML text; `name` is what the problems call it."""
    return _training_config(parse_yaml(text, file=name, remedy=REMEDY), overrides, workspace)


def training_config_from_dict(
    data: Mapping[str, Any], overrides: Overrides = (), *, workspace: Path | None = None
) -> TrainingConfig:
    """Like `load_training_config` for plain data, such as a notebook's dict."""
    return _training_config(document_of(data), overrides, workspace)


def _training_config(
    document: Document, overrides: Overrides, workspace: Path | None
) -> TrainingConfig:
    return resolved(
        TrainingConfig, document, overrides, workspace=workspace, files=check_files, remedy=REMEDY
    )


def resolved(
    model: type[M],
    document: Document,
    overrides: Overrides,
    *,
    workspace: Path | None = None,
    files: FileCheck | None = None,
    remedy: str = "",
) -> M:
    """Return the config with overrides applied. Raises ConfigError with all problems at once.

    With a `workspace` those of the `files` that a wrong config names are among them.
    """
    data, refused = apply_overrides(model, document.data, overrides, origins=document.origins)
    checked = check(model, data, origins=document.origins)
    problems = [*document.problems, *refused, *checked.problems]
    if checked.config is not None and not problems:
        return checked.config
    if checked.usable is not None and workspace is not None and files is not None:
        wrong = [problem.path for problem in problems]
        problems += files(checked.usable, workspace, wrong=wrong)
    raise config_error(list(unique(problems)), remedy=remedy)


def upgraded(model: type[Section], data: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the config of a run's record, which may be of an earlier release."""
    # Mistakes are reported later, with each value and the field that would be valid.
    with suppress(ValidationError):
        return model.model_validate(data).model_dump(mode="json")
    return data


def dump_yaml(config: Section) -> str:
    """Every field, defaults too, so that the text stays true when a default changes."""
    return dump(config.model_dump(mode="json"))


def flatten(config: Section | Mapping[str, Any]) -> dict[str, Any]:
    """Dotted path -> plain value, of a config or of its dictionary; empty mappings vanish.

    The sections of a list have their numbers in the path: `data.train[0].path`.
    """
    data = config.model_dump(mode="json") if isinstance(config, Section) else config
    return dict(_flat(data, ""))


def _flat(data: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for key, value in data.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        elif isinstance(value, list | tuple) and any(isinstance(v, Mapping) for v in value):
            yield from _flat({f"{key}[{number}]": v for number, v in enumerate(value)}, prefix)
        else:
            yield f"{prefix}{key}", value
