"""Check the values of a config against its model and report all mistakes at once.

The values are brought into the shape of the model first (`shape.py`). Pydantic checks each field;
then the rules between the valid fields.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Any, Generic, Protocol, TypeVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from llmops_kernel.config.models.fields import FieldSpec, SectionSpec, would_work
from llmops_kernel.config.models.section import WITHOUT_RULES, Config, Section
from llmops_kernel.config.problems import ABSENT, Origins, Path, Problem, config_error, unique
from llmops_kernel.config.reading.document import Document
from llmops_kernel.config.reading.shape import Data, Overrides, Shaper, each_override

M = TypeVar("M", bound=Section)
_PLACEHOLDER = "unknown"


class FileCheck(Protocol):
    """Checks the files that a config names, except what depends on `wrong` fields."""

    def __call__(
        self, config: Any, folder: FilePath, /, *, wrong: Collection[str] = ()
    ) -> list[Problem]: ...


@dataclass(frozen=True)
class Checked(Generic[M]):
    """The result of a check."""

    config: M | None
    """The config; None when there is any problem."""
    problems: list[Problem]
    usable: M | None
    """The config with defaults (or placeholders) where a value is wrong, for further checks;
    None when too much is wrong."""


def resolved(
    model: type[M],
    document: Document,
    overrides: Overrides = (),
    *,
    workspace: FilePath | None = None,
    files: FileCheck | None = None,
    remedy: str = "",
) -> M:
    """Return the config with overrides applied. Raises ConfigError with all problems at once.

    With a `workspace` those of the `files` that a wrong config names are among them.
    """
    checked = check(model, document, overrides)
    if checked.config is not None:
        return checked.config
    problems = checked.problems
    if checked.usable is not None and workspace is not None and files is not None:
        wrong = [problem.path for problem in problems]
        problems = [*problems, *files(checked.usable, workspace, wrong=wrong)]
    raise config_error(list(unique(problems)), remedy=remedy)


def check(model: type[M], document: Document, overrides: Overrides = ()) -> Checked[M]:
    """Check each field of a document with its overrides, then the rules between the valid ones."""
    origins = document.origins
    shaper = Shaper(model, document.data, origins=origins)
    for given in each_override(overrides):
        if isinstance(given, Problem):
            shaper.problems.append(given)
        else:
            shaper.override(*given)
    shaper.use_own_names()
    shaped = shaper.shape()
    config, errors = _validate(model, shaped)
    spec, problems = shaper.spec, shaper.problems
    problems += _field_problems(spec, shaped, errors, origins, {p.path for p in problems})
    if config is None:
        config, _ = _validate(model, _usable(spec, shaped, errors))
    if config is not None:
        problems += _broken_rules(config, {problem.path for problem in problems}, origins)
    problems = [*document.problems, *problems]
    return Checked(None if problems else config, problems, config)


def _validate(model: type[M], data: Data) -> tuple[M | None, list[ErrorDetails]]:
    """Check each field; the rules between fields come later."""
    try:
        return model.model_validate(data, context=WITHOUT_RULES), []
    except ValidationError as error:
        return None, error.errors(include_url=False)


def _broken_rules(config: Section, wrong: Collection[str], origins: Origins) -> list[Problem]:
    """Return the broken rules that read no field at a `wrong` path."""
    broken = config.broken_rules() if isinstance(config, Config) else []
    return [
        # The message has the value where it matters; a default was never written.
        origins.problem(tuple(rule.path.split(".")), rule.message, hint=rule.suggestion)
        for rule in broken
        if not any(overlap(path, used) for path in wrong for used in (rule.path, *rule.uses))
    ]


# --- What pydantic reports ---


def _field_problems(
    spec: SectionSpec,
    data: Data,
    errors: Iterable[ErrorDetails],
    origins: Origins,
    reported: Collection[str],
) -> list[Problem]:
    """Return one problem per field: a union reports one for each of its types."""
    problems: dict[Path, Problem] = {}
    for error in errors:
        path, field = _locate(spec, data, error["loc"])
        if path in problems or ".".join(path) in reported or field is None:
            continue
        is_missing = error["type"] == "missing"
        message, value, hint = _missing(path, field) if is_missing else _wrong(field, error)
        problems[path] = origins.problem(path, message, value=value, hint=hint)
    return list(problems.values())


def _locate(
    spec: SectionSpec, data: Any, loc: Sequence[int | str]
) -> tuple[Path, FieldSpec | None]:
    """Return the field for pydantic's location, which also names types and items."""
    path: Path = ()
    field: FieldSpec | None = None
    inside: SectionSpec | None = spec
    for part in loc:
        item = None if field is None else field.item
        if isinstance(part, int) and item is not None:
            path, inside = (*path, str(part)), item
            continue
        if inside is None and item is not None:
            continue  # pydantic's name of what is written: a text or a list of sections
        fields = {} if inside is None else inside.chosen(data).fields
        if str(part) not in fields:
            break
        path, field = (*path, str(part)), fields[str(part)]
        inside = field.section
        data = data.get(part) if isinstance(data, Mapping) else None
    return path, field


def _missing(path: Path, field: FieldSpec) -> tuple[str, Any, str]:
    """Return message, value and hint."""
    if field.section is None:
        text = field.about.rstrip(".")
        return "is missing", ABSENT, f"give {text[:1].lower()}{text[1:]}"
    model = field.section.model
    needed = [name for name, inner in model.model_fields.items() if inner.is_required()]
    needed += [] if needed or model.shorthand is None else [model.shorthand]
    hint = f"add `{path[-1]}:` with `{needed[0]}: ...` below it" if needed else ""
    return "this section is missing", ABSENT, hint


def _wrong(field: FieldSpec, error: ErrorDetails) -> tuple[str, Any, str]:
    """Return message, value and hint."""
    value = error["input"]
    if error["type"] == "value_error":
        # The validator's message; the value of a whole section is not shown.
        return str(error["ctx"]["error"]), ABSENT if isinstance(value, Mapping) else value, ""
    return f"must be {field.expected}", value, would_work(field, value)


def _usable(spec: SectionSpec, data: Data, errors: Iterable[ErrorDetails]) -> Data:
    """Return the data without wrong values, so that the rules between the others can be checked."""
    usable = _copy(data)
    for error in errors:
        path, _ = _locate(spec, data, error["loc"])
        if path:
            _drop(usable, path)
    return _filled(spec, usable)


def _copy(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copy(item) for key, item in value.items()}
    return [_copy(item) for item in value] if isinstance(value, list | tuple) else value


def _drop(data: Data, path: Path) -> None:
    """Drop a value; for an item of a list the whole list, or the others would get new numbers."""
    inside: Any = data
    for place, part in enumerate(path[:-1], start=1):
        inside = inside.get(part, {})
        if isinstance(inside, list):
            _drop(data, path[:place])
            return
    inside.pop(path[-1], None)


def _filled(spec: SectionSpec, data: Data) -> Data:
    """Fill missing required texts with a placeholder, which no message shows."""
    for name, field in spec.chosen(data).fields.items():
        if field.item is not None:
            for item in data.get(name) or ():
                if isinstance(item, dict):
                    _filled(field.item, item)
        elif field.section is not None:
            if isinstance(below := data.setdefault(name, {}), dict):
                _filled(field.section, below)
        elif field.is_required:
            data.setdefault(name, _PLACEHOLDER)
    return data


def overlap(path: str, other: str) -> bool:
    """Return whether the paths are the same, or one is below the other."""
    return f"{path}.".startswith(f"{other}.") or f"{other}.".startswith(f"{path}.")


def upgraded(model: type[Section], data: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the config of a run's record, which may be of an earlier release."""
    # Mistakes are reported later, with each value and the field that would be valid.
    with suppress(ValidationError):
        return model.model_validate(data).model_dump(mode="json")
    return data
