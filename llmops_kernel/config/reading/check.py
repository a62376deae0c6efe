"""Check plain data against a model and report all mistakes at once.

First the data is brought into the shape of the model: sections are expanded, unknown keys and
variants reported. Pydantic checks each field of it; then the rules between the valid fields.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from llmops_kernel.config.models.choice import Choice, chosen_in, fields_of
from llmops_kernel.config.models.describe import (
    expected,
    item_section,
    members,
    section_of,
    would_work,
)
from llmops_kernel.config.models.section import WITHOUT_RULES, Config, Section, about
from llmops_kernel.config.names import ALIASES, TRAINING_ARGUMENTS
from llmops_kernel.config.problems import (
    ABSENT,
    MOST_SUGGESTED,
    MOST_UNKNOWN,
    Problem,
    closest,
    config_error,
    listed,
    unique,
)
from llmops_kernel.config.reading.document import Origins, Path

M = TypeVar("M", bound=Section)
Data = dict[str, Any]
_PLACEHOLDER = "unknown"
_SURE = 0.8  # so like a key of the same section that it is meant before one of another section


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
    shaper = _Shaper(model, origins)
    shaped = shaper.shape(model, data)
    problems = shaper.all_problems()
    config, errors = _validate(model, shaped)
    reported = {problem.path for problem in problems}
    problems = [*problems, *_field_problems(model, shaped, errors, origins, reported)]
    if config is None:
        config, _ = _validate(model, _usable(model, shaped, errors))
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


def at(
    path: Path, origins: Origins, message: str, *, value: Any = ABSENT, hint: str = ""
) -> Problem:
    """Return a problem with the file and line where `path` was written."""
    origin = origins.of(path)
    return Problem(
        path=".".join(path),
        message=message,
        value=value,
        suggestion=hint,
        file=origin.file,
        line=origin.line,
        text=None if value is None else origin.text,
    )


def expand(section: type[Section], value: Any) -> Any:
    """Return `lora` as `{"type": "lora"}`, an empty section as `{}`, a model as its values."""
    if isinstance(value, BaseModel):
        return value.model_dump()
    if value is None:
        return {}
    if section.shorthand is not None and isinstance(value, str | int | float):
        return {section.shorthand: value}
    return dict(value) if isinstance(value, Mapping) else value


# --- The shape ---


class _Shaper:
    """Walks the data along its model; leaves out and reports what cannot be used."""

    def __init__(self, root: type[Section], origins: Origins) -> None:
        self.problems: list[Problem] = []
        self._root = root
        self._origins = origins
        self._num_unknown = 0

    def all_problems(self) -> list[Problem]:
        """Return the problems found, at the end how many unknown keys are not listed."""
        more = self._num_unknown - MOST_UNKNOWN
        if more <= 0:
            return self.problems
        message = f"{more:,} more unknown keys"
        hint = "is this a config of another kind?"
        return [*self.problems, at((), self._origins, message, hint=hint)]

    def shape(
        self, section: type[Section], data: Mapping[Any, Any], path: Path = (), chosen: Any = None
    ) -> Data:
        """Return the data of a section; of one with variants, of the `chosen` one."""
        fields = fields_of(section, chosen)
        shaped: Data = {}
        for key, value in data.items():
            name = section.renamed.get(str(key), str(key))
            if name != key:
                self._origins.copy((*path, str(key)), (*path, name))
            if name not in fields:
                self._unknown(section, (*path, name), value, chosen)
                continue
            used = self._used(fields[name], value, (*path, name))
            if used is not ABSENT:
                shaped[name] = used
        return shaped

    def _used(self, field: FieldInfo, value: Any, path: Path) -> Any:
        section = section_of(field.annotation)
        if section is None:
            each = item_section(field)
            if each is not None and isinstance(value, list | tuple):
                items = (self._section(each, v, (*path, str(i))) for i, v in enumerate(value))
                return [item for item in items if item is not ABSENT]
            return self._leaf(field, value, path)
        return self._section(section, value, path)

    def _section(self, section: type[Section], value: Any, path: Path) -> Any:
        below = expand(section, value)
        short = section.shorthand
        if short is not None and not isinstance(value, Mapping | BaseModel):
            self._origins.copy(path, (*path, short))
        if not isinstance(below, dict):
            or_plain = f", or just a value for {short}" if short else ""
            message = f"must be a section of `key: value` lines{or_plain}"
            self.problems.append(at(path, self._origins, message, value=value))
            return ABSENT
        if issubclass(section, Choice):
            return self._variant(section, below, path)
        return self.shape(section, below, path)

    def _variant(self, section: type[Choice], below: Data, path: Path) -> Data:
        """Shape the variant that is named; with an unknown name, the one that fits the keys."""
        short = str(section.shorthand)
        path_of_name, field = (*path, short), fields_of(section)[short]
        name = self._leaf(field, below[short], path_of_name) if short in below else None
        if short not in below or section.variants.get(name) is not None:
            return self.shape(section, below, path, chosen_in(section, name))
        if name is not ABSENT:  # else it is reported already
            self._refuse(field, name, path_of_name)
        rest = {key: value for key, value in below.items() if key != short}
        near = section.variants.nearest(rest)
        # Fields of other variants may be right under the name that was meant.
        known = {
            key: v
            for key, v in rest.items()
            if key in near.model_fields or not _owners(section, key)
        }
        return {short: near.variant_name, **self.shape(section, known, path, near.variant_name)}

    def _leaf(self, field: FieldInfo, value: Any, path: Path) -> Any:
        kinds = members(field.annotation)
        if item_section(field) is not None and str in kinds:
            return self._text(value, path)
        if isinstance(value, bool) and all(get_origin(kind) is Literal for kind in kinds):
            value = self._text(value, path)  # a choice may be called `off`
        if isinstance(value, bool) and bool not in kinds and str not in kinds:
            # pydantic would take `yes` for 1.
            self._refuse(field, value, path)
            return ABSENT
        if set(kinds) <= {str, type(None)}:
            return self._text(value, path)
        if get_origin(kinds[0]) is dict and isinstance(value, Mapping):
            as_text = get_args(kinds[0])[1] is str
            return {
                str(key): self._text(item, (*path, str(key))) if as_text else item
                for key, item in value.items()
            }
        if get_origin(kinds[0]) is tuple and isinstance(value, list | tuple):
            as_text = get_args(kinds[0])[0] is str
            return [self._text(v, (*path, str(i))) if as_text else v for i, v in enumerate(value)]
        return value

    def _text(self, value: Any, path: Path) -> Any:
        """Return the text that the user wrote: YAML reads `no` and `0012` as other types."""
        if isinstance(value, bool | int | float):
            written = self._origins.text(path)
            return value if written is None else written
        return value

    def _refuse(self, field: FieldInfo, value: Any, path: Path) -> None:
        hint = would_work(field, value)
        message = f"must be {expected(field)}"
        self.problems.append(at(path, self._origins, message, value=value, hint=hint))

    def _unknown(self, section: type[Section], path: Path, value: Any, chosen: Any) -> None:
        removed = section.removed.get(path[-1])
        if removed is not None and value == removed.default:
            return  # `llmops init` wrote it.
        self._num_unknown += 1
        if self._num_unknown > MOST_UNKNOWN:
            return
        shown = ABSENT if isinstance(value, dict | list) else value
        if removed is not None:
            message, hint = "is no longer a field", removed.remedy
        elif owners := _owners(section, path[-1]):
            message = f"is a field of {' and '.join(owners)}, not of {chosen}"
            hint = f"delete it, or set {path[-2]}.{section.shorthand}={owners[0]}"
        else:
            message, hint = "unknown key", ""
            if self._num_unknown <= MOST_SUGGESTED:
                hint = suggest_key(self._root, section, path[-1], chosen)
        self.problems.append(at(path, self._origins, message, value=shown, hint=hint))


def _owners(section: type[Section], name: str) -> list[str]:
    """Return the variants that have a field; none where the section has no variants."""
    return section.variants.owners(name) if issubclass(section, Choice) else []


def leaves(model: type[Section], path: Path = ()) -> Iterator[Path]:
    """Yield the paths of all fields that are not sections, those of all variants too."""
    for name, field in fields_of(model).items():
        section = section_of(field.annotation)
        if section is None:
            yield (*path, name)
        else:
            yield from leaves(section, (*path, name))


def suggest_key(root: type[Section], section: type[Section], name: str, chosen: Any = None) -> str:
    """Return what the user most likely meant by a key that `section` does not have."""
    here = list(fields_of(section, chosen))
    if sure := closest(name, here, cutoff=_SURE):
        return f"did you mean {sure}?"
    known = ALIASES.get(name.lower()) if "model" in root.model_fields else None
    if known and (leaf := known.split(".")[-1]) in here:
        outer = root.model_fields.get(known.rpartition(".")[0])
        if known == leaf or (outer is not None and section_of(outer.annotation) is section):
            return f"did you mean {leaf}?"
    owners = [path[0] for path in leaves(root) if len(path) > 1 and path[-1] == name]
    if owners:
        return f"{name} belongs under {' or '.join(f'{owner}:' for owner in owners)}"
    if name in root.model_fields:
        return f"{name} belongs at the top level"
    if known:
        return f"did you mean {known}?"
    return _guess(root, here, name)


def _guess(root: type[Section], here: list[str], name: str) -> str:
    if match := closest(name, here):
        return f"did you mean {match}?"
    if "training_arguments" in root.model_fields and name in TRAINING_ARGUMENTS:
        return f"{name} belongs under training_arguments:"
    paths = {path[-1]: ".".join(path) for path in leaves(root)}
    if match := closest(name, paths, cutoff=0.75):
        return f"did you mean {paths[match]}?"
    return f"known here: {listed(here, limit=14)}"


# --- What pydantic reports ---


def _field_problems(
    model: type[Section],
    data: Data,
    errors: Iterable[ErrorDetails],
    origins: Origins,
    reported: Collection[str],
) -> list[Problem]:
    """Return one problem per field: a union reports one for each of its types."""
    problems: dict[Path, Problem] = {}
    for error in errors:
        path, field = _locate(model, data, error["loc"])
        if path in problems or ".".join(path) in reported or field is None:
            continue
        if error["type"] == "missing":
            problems[path] = _missing(path, field, origins)
        else:
            problems[path] = _wrong(path, field, error, origins)
    return list(problems.values())


def _locate(
    model: type[Section], data: Any, loc: Sequence[int | str]
) -> tuple[Path, FieldInfo | None]:
    """Return the field for pydantic's location, which also names types and items."""
    path: Path = ()
    field: FieldInfo | None = None
    inside: type[Section] | None = model
    for part in loc:
        each = None if field is None else item_section(field)
        if isinstance(part, int) and each is not None:
            path, inside = (*path, str(part)), each
            continue
        if inside is None and each is not None:
            continue  # pydantic's name of what is written: a text or a list of sections
        fields = {} if inside is None else fields_of(inside, chosen_in(inside, data))
        if str(part) not in fields:
            break
        path, field = (*path, str(part)), fields[str(part)]
        inside = section_of(field.annotation)
        data = data.get(part) if isinstance(data, Mapping) else None
    return path, field


def _missing(path: Path, field: FieldInfo, origins: Origins) -> Problem:
    section = section_of(field.annotation)
    if section is not None:
        needed = [name for name, inner in section.model_fields.items() if inner.is_required()]
        hint = f"add `{path[-1]}:` with `{needed[0]}: ...` below it" if needed else ""
        return at(path, origins, "this section is missing", hint=hint)
    text = about(field).rstrip(".")
    return at(path, origins, "is missing", hint=f"give {text[:1].lower()}{text[1:]}")


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
        path, _ = _locate(model, data, error["loc"])
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
    for name, field in fields_of(model, chosen_in(model, data)).items():
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


def overlap(path: str, other: str) -> bool:
    """Return whether the paths are the same, or one is below the other."""
    return f"{path}.".startswith(f"{other}.") or f"{other}.".startswith(f"{path}.")
