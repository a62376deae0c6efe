"""Check plain data against a model and report all mistakes at once."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from pydantic import ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from llmops_kernel.config.field_docs import about
from llmops_kernel.config.models.choice import view_for
from llmops_kernel.config.models.describe import expected, item_section, section_of, would_work
from llmops_kernel.config.models.section import WITHOUT_RULES, Config, Section
from llmops_kernel.config.problems import ABSENT, Problem, config_error, unique
from llmops_kernel.config.reading.document import Origins, Path
from llmops_kernel.config.reading.shape import Data, Shaper, at

M = TypeVar("M", bound=Section)
_PLACEHOLDER = "unknown"


@dataclass(frozen=True)
class Checked(Generic[M]):
    """The result of a check."""

    config: M | None
    """The config; None when there is any problem."""
    problems: list[Problem]
    usable: M | None
    """The config with defaults (or placeholders) where a value is wrong, for further checks;
    None when too much is wrong."""


def validated(
    model: type[M],
    data: Mapping[str, Any],
    *,
    origins: Origins,
    problems: Sequence[Problem] = (),
    remedy: str = "",
) -> M:
    """Return the config. Raises ConfigError with `problems` and all that is wrong in `data`."""
    checked = check(model, data, origins=origins)
    if checked.config is None or problems:
        raise config_error(list(unique([*problems, *checked.problems])), remedy=remedy)
    return checked.config


def check(model: type[M], data: Mapping[str, Any], *, origins: Origins) -> Checked[M]:
    """Check plain data: each field, then the rules between the fields that are valid."""
    view = view_for(model, data)
    shaper = Shaper(view, origins)
    shaped = shaper.shape(view, data)
    shape_problems = shaper.all_problems()
    left_out = {problem.path for problem in shape_problems}
    config, errors = _validate(model, shaped)
    errors = errors if config is not None else _validate(view, shaped)[1]
    problems = [*shape_problems, *_field_problems(view, errors, origins, left_out)]
    if config is None:
        config, _ = _validate(model, _usable(view, shaped, errors))
    if config is not None:
        problems += _broken_rules(config, {problem.path for problem in problems}, origins)
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
        at(tuple(rule.path.split(".")), origins, rule.message, hint=rule.suggestion)
        for rule in broken
        if not any(overlap(path, used) for path in wrong for used in (rule.path, *rule.uses))
    ]


def _field_problems(
    model: type[Section], errors: Iterable[ErrorDetails], origins: Origins, reported: set[str]
) -> list[Problem]:
    """Return one problem per field: a union reports one for each of its types."""
    problems: dict[Path, Problem] = {}
    for error in errors:
        path, field = _locate(model, error["loc"])
        if path in problems or ".".join(path) in reported or field is None:
            continue
        problems[path] = _missing(path, field, origins) if error["type"] == "missing" else _wrong(
            path, field, error, origins
        )  # fmt: skip
    return list(problems.values())


def _locate(model: type[Section], loc: Sequence[int | str]) -> tuple[Path, FieldInfo | None]:
    """Return the field for pydantic's location, which also names types and items."""
    path: Path = ()
    field: FieldInfo | None = None
    inside: type[Section] | None = model
    for part in loc:
        if isinstance(part, int) and field is not None and item_section(field) is not None:
            path, inside = (*path, str(part)), item_section(field)
            continue
        if inside is None and field is not None and item_section(field) is not None:
            continue  # pydantic's name of what is written: a text or a list of sections
        if inside is None or str(part) not in inside.model_fields:
            break
        path, field = (*path, str(part)), inside.model_fields[str(part)]
        inside = section_of(field.annotation)
    return path, field


def _missing(path: Path, field: FieldInfo, origins: Origins) -> Problem:
    section = section_of(field.annotation)
    if section is not None:
        needed = [name for name, inner in section.model_fields.items() if inner.is_required()]
        hint = f"add `{path[-1]}:` with `{needed[0]}: ...` below it" if needed else ""
        return at(path, origins, "this section is missing", hint=hint)
    wanted = about(field).rstrip(".")
    return at(path, origins, "is missing", hint=f"give {wanted[:1].lower()}{wanted[1:]}")


def _wrong(path: Path, field: FieldInfo, error: ErrorDetails, origins: Origins) -> Problem:
    value = error["input"]
    if error["type"] == "value_error":
        # The validator's message; the value of a whole section is not shown.
        shown = ABSENT if isinstance(value, Mapping) else value
        return at(path, origins, str(error["ctx"]["error"]), value=shown)
    hint = would_work(field, value)
    return at(path, origins, f"must be {expected(field)}", value=value, hint=hint)


def _usable(model: type[Section], data: Data, errors: Iterable[ErrorDetails]) -> Data:
    """Return the data without wrong values, so that the rules between the others can be checked."""
    usable = _copy(data)
    for error in errors:
        path, _ = _locate(model, error["loc"])
        if path:
            _drop(usable, path)
    return _filled(model, usable)


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


def _filled(model: type[Section], data: Data) -> Data:
    """Fill missing required texts with a placeholder, which no message shows."""
    for name, field in model.model_fields.items():
        section = section_of(field.annotation)
        each = item_section(field)
        if each is not None:
            for item in data.get(name) or ():
                if isinstance(item, dict):
                    _filled(each, item)
        elif section is not None and isinstance(data.setdefault(name, {}), dict):
            _filled(section, data[name])
        elif field.is_required():
            data.setdefault(name, _PLACEHOLDER)
    return data


def overlap(one: str, other: str) -> bool:
    """Return whether the paths are the same, or one is below the other."""
    return f"{one}.".startswith(f"{other}.") or f"{other}.".startswith(f"{one}.")
