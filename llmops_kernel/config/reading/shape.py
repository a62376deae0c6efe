"""Bring plain data into the shape of a model: expand sections, report unknown keys."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from llmops_kernel.config.models.choice import Choice, widest
from llmops_kernel.config.models.describe import (
    expected,
    item_section,
    members,
    section_of,
    would_work,
)
from llmops_kernel.config.models.section import Section
from llmops_kernel.config.names import ALIASES, TRAINING_ARGUMENTS
from llmops_kernel.config.problems import (
    ABSENT,
    MOST_SUGGESTED,
    MOST_UNKNOWN,
    Problem,
    closest,
    listed,
)
from llmops_kernel.config.reading.document import Origins, Path

Data = dict[str, Any]
_SURE = 0.8  # so like a key of the same section that it is meant before one of another section


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


class Shaper:
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

    def shape(self, model: type[Section], data: Mapping[Any, Any], path: Path = ()) -> Data:
        shaped: Data = {}
        for key, value in data.items():
            name = model.renamed.get(str(key), str(key))
            if name != key:
                self._origins.copy((*path, str(key)), (*path, name))
            field = model.model_fields.get(name)
            if field is None:
                self._unknown(model, (*path, name), value)
                continue
            used = self._used(field, value, (*path, name))
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
        if section.shorthand is not None and not isinstance(value, Mapping | BaseModel):
            self._origins.copy(path, (*path, section.shorthand))
        if not isinstance(below, dict):
            short = f", or just a value for {section.shorthand}" if section.shorthand else ""
            message = f"must be a section of `key: value` lines{short}"
            self.problems.append(at(path, self._origins, message, value=value))
            return ABSENT
        return self.shape(section, below, path)

    def _leaf(self, field: FieldInfo, value: Any, path: Path) -> Any:
        kinds = members(field.annotation)
        if item_section(field) is not None and str in kinds:
            return self._text(value, path)
        if isinstance(value, bool) and all(get_origin(kind) is Literal for kind in kinds):
            value = self._text(value, path)  # a choice may be called `off`
        if isinstance(value, bool) and bool not in kinds and str not in kinds:
            # pydantic would take `yes` for 1.
            message = f"must be {expected(field)}"
            hint = would_work(field, value)
            self.problems.append(at(path, self._origins, message, value=value, hint=hint))
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

    def _unknown(self, model: type[Section], path: Path, value: Any) -> None:
        self._num_unknown += 1
        if self._num_unknown > MOST_UNKNOWN:
            return
        shown = ABSENT if isinstance(value, dict | list) else value
        owners = model.variants.owners(path[-1]) if issubclass(model, Choice) else []
        if owners and issubclass(model, Choice):
            message = f"is a field of {' and '.join(owners)}, not of {model.variant_name}"
            hint = f"delete it, or set {path[-2]}.{model.shorthand}={owners[0]}"
        else:
            message, hint = "unknown key", ""
            if self._num_unknown <= MOST_SUGGESTED:
                hint = suggest_key(self._root, model, path[-1])
        self.problems.append(at(path, self._origins, message, value=shown, hint=hint))


def leaves(model: type[Section], path: Path = ()) -> Iterator[Path]:
    """Yield the paths of all fields that are not sections, those of all variants too."""
    for name, field in widest(model).model_fields.items():
        section = section_of(field.annotation)
        if section is None:
            yield (*path, name)
        else:
            yield from leaves(section, (*path, name))


def suggest_key(root: type[Section], model: type[Section], name: str) -> str:
    """Return what the user most likely meant by a key that `model` does not have."""
    here = list(model.model_fields)
    if sure := closest(name, here, cutoff=_SURE):
        return f"did you mean {sure}?"
    root = widest(root)
    known = ALIASES.get(name.lower()) if "model" in root.model_fields else None
    everywhere = [path for path in leaves(root) if len(path) > 1]
    owners = [path[0] for path in everywhere if path[-1] == name]
    if known and known.split(".")[-1] in here and (known in here or _owns(root, model, known)):
        return f"did you mean {known.split('.')[-1]}?"
    if owners:
        return f"{name} belongs under {' or '.join(f'{owner}:' for owner in owners)}"
    if name in root.model_fields:
        return f"{name} belongs at the top level"
    if known:
        return f"did you mean {known}?"
    return _guess(root, here, name)


def _owns(root: type[Section], model: type[Section], dotted: str) -> bool:
    """Whether `dotted` names a field of `model`, or a leaf without a section."""
    section, _, leaf = dotted.rpartition(".")
    if not section:
        return leaf in model.model_fields
    found = section_of(root.model_fields[section].annotation)
    return found is not None and leaf in found.model_fields and _same_section(found, model)


def _same_section(one: type[Section], other: type[Section]) -> bool:
    if issubclass(one, Choice) and issubclass(other, Choice):
        return one.variants is other.variants
    return one is other


def _guess(root: type[Section], here: list[str], name: str) -> str:
    if match := closest(name, here):
        return f"did you mean {match}?"
    if "training_arguments" in root.model_fields and name in TRAINING_ARGUMENTS:
        return f"{name} belongs under training_arguments:"
    paths = {path[-1]: ".".join(path) for path in leaves(root)}
    if match := closest(name, paths, cutoff=0.75):
        return f"did you mean {paths[match]}?"
    return f"known here: {listed(here, limit=14)}"
