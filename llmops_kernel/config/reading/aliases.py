"""Read names from elsewhere that say the same as a field, as the field itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from llmops_kernel.config.models.choice import fields_of
from llmops_kernel.config.models.describe import section_of
from llmops_kernel.config.models.section import Config, Section
from llmops_kernel.config.names import ACCUMULATION, PER_DEVICE, Alias
from llmops_kernel.config.problems import ABSENT, Problem
from llmops_kernel.config.reading.check import Data, at, expand
from llmops_kernel.config.reading.document import Origin, Origins, Path

_MICRO, _GLOBAL = ("training", "micro_batch_size"), ("training", "global_batch_size")


def with_own_names(
    model: type[Section], data: Mapping[str, Any], *, origins: Origins
) -> tuple[Data, list[Problem]]:
    """Return the data with the config's own names; a field with two values is a problem.

    An override wins over what the file says by another name.
    """
    values: Data = {str(key): value for key, value in data.items()}
    problems: list[Problem] = []
    if not issubclass(model, Config):
        return values, problems
    names: dict[Path, Path] = {}  # field -> the name that its value was given by
    sections = [section for section in values.values() if isinstance(section, Mapping)]
    given = {str(key) for part in (values, *sections) for key in part}
    for name, alias in model.aliases.items():
        if name == ACCUMULATION and names.get(_MICRO, ())[-1:] == (PER_DEVICE,):
            _accumulate_nothing(values, origins, names[_MICRO])
        if name not in values and name.rpartition(".")[2] not in given:
            continue
        for path in _places(name, alias):
            value = _value_at(values, path)
            own = ABSENT if value is ABSENT else alias.convert(value, _Given(model, values))
            if own is ABSENT:
                continue  # the check explains the name
            inside = _opened(model, values, alias.path[:-1], origins)
            if inside is None:
                continue  # the check reports what is no section
            del (inside if len(path) > 1 else values)[path[-1]]
            there, by = inside.get(alias.path[-1], ABSENT), names.get(alias.path, alias.path)
            origin, before = origins.of(path), origins.of(by)
            if there in (ABSENT, own) or (origin.is_override and not before.is_override):
                inside[alias.path[-1]] = own
                names[alias.path] = path
                text = origin.text if own == value else None
                origins.put(alias.path, Origin(origin.file, origin.line, text))
            elif origin.is_override or not before.is_override:
                message = f"is the same as {'.'.join(by)}, which has another value"
                problem = at(path, origins, message, value=value, hint="keep one of them")
                problems.append(problem)
    return values, problems


def _accumulate_nothing(values: Data, origins: Origins, path: Path) -> None:
    """Read a batch size of one device, without a size of all, as Transformers does."""
    places = (_GLOBAL, (ACCUMULATION,), ("training", ACCUMULATION))
    if all(_value_at(values, place) is ABSENT for place in places):
        values[ACCUMULATION] = 1
        origins.copy(path, (ACCUMULATION,))


def _places(name: str, alias: Alias) -> Iterator[Path]:
    """Yield where a name may stand: at the top or in its field's section, or as it is dotted."""
    if "." in name:
        yield tuple(name.split("."))
        return
    for path in ((name,), (*alias.path[:-1], name)):
        if path != alias.path:
            yield path


def _value_at(values: Any, path: Path) -> Any:
    for part in path:
        values = values.get(part, ABSENT) if isinstance(values, Mapping) else ABSENT
    return values


def _opened(model: type[Section], values: Data, path: Path, origins: Origins) -> Data | None:
    """Return a section's values to write into; None if it is no section."""
    if not path:
        return values
    section, written = section_of(model.model_fields[path[0]].annotation), values.get(path[0])
    assert section is not None
    below = expand(section, written)
    if not isinstance(below, dict):
        return None
    if section.shorthand is not None and not isinstance(written, Mapping):
        origins.copy(path, (*path, section.shorthand))
    values[path[0]] = below
    return below


class _Given:
    """Looks up what the config says, or the default of a field that it leaves out."""

    def __init__(self, model: type[Section], values: Data) -> None:
        self._model, self._values = model, values

    def __call__(self, section: str, name: str) -> Any:
        value = _value_at(self._values, (section, name))
        inside = section_of(self._model.model_fields[section].annotation)
        if value is not ABSENT or inside is None:
            return value
        return fields_of(inside)[name].get_default(call_default_factory=True)
