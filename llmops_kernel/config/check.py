"""Checks plain data against a model and tells every mistake at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar, cast

from pydantic import ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from llmops_kernel.config.describe import expected, item_section, section_of, would_work
from llmops_kernel.config.origins import Origins, Path
from llmops_kernel.config.problems import ABSENT, Problem, config_error, unique
from llmops_kernel.config.rules import Broken
from llmops_kernel.config.sections import Section
from llmops_kernel.config.shape import Data, Shaper, at

M = TypeVar("M", bound=Section)
_RULES = "rules"
_PLACEHOLDER = "unknown"


def validated(
    model: type[M],
    data: Mapping[str, Any],
    *,
    origins: Origins,
    problems: Sequence[Problem] = (),
    remedy: str = "",
) -> M:
    """The checked model. Raises ConfigError with `problems` and all that is wrong in `data`."""
    config, found = check(model, data, origins=origins)
    if config is None or problems or found:
        raise config_error(list(unique([*problems, *found])), remedy=remedy)
    return config


def check(
    model: type[M], data: Mapping[str, Any], *, origins: Origins
) -> tuple[M | None, list[Problem]]:
    """The model, or None and what is wrong."""
    shaper = Shaper(model, origins)
    shaped = shaper.shape(model, data)
    left_out = {problem.path for problem in shaper.problems}
    errors = _errors(model, shaped)
    if not errors and not shaper.problems:
        return model.model_validate(shaped), []
    fields = [error for error in errors if error["type"] != _RULES]
    problems = [*shaper.problems, *_field_problems(model, fields, origins, left_out)]
    wrong = {problem.path for problem in problems}
    broken = (
        _broken(errors) if not fields else _broken(_errors(model, _usable(model, shaped, fields)))
    )
    problems += [
        _rule_problem(rule, shaped, origins)
        for rule in broken
        if not any(_overlap(path, used) for path in wrong for used in (rule.path, *rule.uses))
    ]
    return None, problems


def _errors(model: type[Section], data: Data) -> list[ErrorDetails]:
    try:
        model.model_validate(data)
    except ValidationError as error:
        return error.errors(include_url=False)
    return []


def _broken(errors: Iterable[ErrorDetails]) -> list[Broken]:
    found = [error["ctx"]["broken"] for error in errors if error["type"] == _RULES]
    return [cast("Broken", rule) for rules in found for rule in rules]


def _field_problems(
    model: type[Section], errors: Iterable[ErrorDetails], origins: Origins, told: set[str]
) -> list[Problem]:
    """One problem a field: a union reports once for each of its types."""
    problems: dict[Path, Problem] = {}
    for error in errors:
        path, field = _locate(model, error["loc"])
        if path in problems or ".".join(path) in told or field is None:
            continue
        problems[path] = _missing(path, field, origins) if error["type"] == "missing" else _wrong(
            path, field, error, origins
        )  # fmt: skip
    return list(problems.values())


def _locate(model: type[Section], loc: Sequence[int | str]) -> tuple[Path, FieldInfo | None]:
    """The field behind pydantic's location, which goes on into types and items."""
    path: Path = ()
    field: FieldInfo | None = None
    inside: type[Section] | None = model
    for part in loc:
        if isinstance(part, int) and field is not None and item_section(field) is not None:
            path, inside = (*path, str(part)), item_section(field)
            continue
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
    about = " ".join((field.description or "").split()).rstrip(".")
    return at(path, origins, "is missing", hint=f"give {about[:1].lower()}{about[1:]}")


def _wrong(path: Path, field: FieldInfo, error: ErrorDetails, origins: Origins) -> Problem:
    value = error["input"]
    if error["type"] == "value_error":
        # A validator's own words; of a whole section only they are shown.
        shown = ABSENT if isinstance(value, Mapping) else value
        return at(path, origins, str(error["ctx"]["error"]), value=shown)
    hint = would_work(field, value)
    return at(path, origins, f"must be {expected(field)}", value=value, hint=hint)


def _rule_problem(rule: Broken, data: Data, origins: Origins) -> Problem:
    # The value stands in the message where it matters; a default was never written.
    return at(tuple(rule.path.split(".")), origins, rule.message, hint=rule.suggestion)


def _usable(model: type[Section], data: Data, errors: Iterable[ErrorDetails]) -> Data:
    """The data without its broken values, so that the rules between the others can be checked."""
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
    """Of a list's item the whole list: the others would get new numbers, or it may be required."""
    inside: Any = data
    for place, part in enumerate(path[:-1], start=1):
        inside = inside.get(part, {})
        if isinstance(inside, list):
            _drop(data, path[:place])
            return
    inside.pop(path[-1], None)


def _filled(model: type[Section], data: Data) -> Data:
    """Required texts that are missing get a placeholder; it is in no message."""
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


def _overlap(one: str, other: str) -> bool:
    """True for the same path, or one that lies below the other."""
    return f"{one}.".startswith(f"{other}.") or f"{other}.".startswith(f"{one}.")
