"""Bring the values of a config into the shape of its model.

Sections are opened: `method: lora` is `{type: lora}`. Overrides are put in, names from elsewhere
become the fields that they mean; then one walk along the model leaves out and reports what
cannot be used. Where each value was written goes along.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel

from llmops_kernel.config.models.fields import FieldSpec, SectionSpec, spec_of, would_work
from llmops_kernel.config.models.section import Config, Section
from llmops_kernel.config.names import (
    ACCUMULATION,
    ALIASES,
    PER_DEVICE,
    TRAINING_ARGUMENTS,
    Alias,
)
from llmops_kernel.config.problems import (
    ABSENT,
    MOST_SUGGESTED,
    MOST_UNKNOWN,
    OVERRIDE,
    Origin,
    Origins,
    Path,
    Problem,
    closest,
    listed,
)
from llmops_kernel.config.reading.document import READ_ERRORS, parse_value

Overrides = Mapping[str, Any] | Sequence[str]
Data = dict[str, Any]
_MAX_PARTS = 32
"""Limit for the name in an override: each part is a call deeper when its value is laid over."""
_SURE = 0.8  # so like a key of the same section that it is meant before one of another section
_MICRO, _GLOBAL = ("training", "micro_batch_size"), ("training", "global_batch_size")


def expand(section: SectionSpec, value: Any) -> Any:
    """Return `lora` as `{"type": "lora"}`, an empty section as `{}`, a model as its values."""
    if isinstance(value, BaseModel):
        return value.model_dump()
    if value is None:
        return {}
    if section.shorthand is not None and isinstance(value, str | int | float):
        return {section.shorthand: value}
    return dict(value) if isinstance(value, Mapping) else value


class Shaper:
    """The values of a config on their way to its model; `problems` says what is left out."""

    def __init__(self, model: type[Section], data: Mapping[Any, Any], *, origins: Origins) -> None:
        self.problems: list[Problem] = []
        self._model = model
        self.spec = spec_of(model)
        self._origins = origins
        self._num_unknown = 0
        self.values = self._open(self.spec, data, ())
        """The values as they are written, each section as a mapping."""

    def _open(self, spec: SectionSpec, data: Mapping[Any, Any], path: Path) -> Data:
        opened: Data = {}
        for key, value in data.items():
            field = spec.fields.get(str(key))
            below = (*path, str(key))
            section = None if field is None else field.section
            opened[str(key)] = value if section is None else self._opened(section, value, below)
        return opened

    def _opened(self, section: SectionSpec, value: Any, path: Path) -> Any:
        """Return a section's values with those of the sections in it; as it is if it is none."""
        below = expand(section, value)
        if section.shorthand is not None and not isinstance(value, Mapping | BaseModel):
            self._origins.copy(path, (*path, section.shorthand))
        return self._open(section, below, path) if isinstance(below, dict) else value

    def _report(self, path: Path, message: str, *, value: Any = ABSENT, hint: str = "") -> None:
        self.problems.append(self._origins.problem(path, message, value=value, hint=hint))

    # --- Overrides ---

    def override(self, key: str, value: Any, origin: Origin) -> None:
        """Set the value of a field; a mapping is merged into what is there."""
        path = _resolve(self._model, self.spec, key, origin)
        if isinstance(path, Problem):
            self.problems.append(path)
            return
        name, written = path[0], value
        field = self.spec.fields.get(name)
        section = None if field is None else field.section
        base = self.values.get(name)
        if section is not None and not isinstance(base, dict):
            base = {}
        if section is not None and len(path) == 1:
            if value is None and section.shorthand is not None:
                value = {section.shorthand: None}
            elif value is None:
                base = {}  # the whole section at its defaults
            value = expand(section, value)
        if len(path) == 1 and isinstance(value, Mapping) and isinstance(base, Mapping):
            self.values[name] = {**base, **{str(key): inner for key, inner in value.items()}}
            is_plain = not isinstance(written, Mapping | BaseModel)
            for key in value:
                text = origin.text if is_plain else None
                self._origins.put((name, str(key)), Origin(origin.file, text=text))
        else:
            self.values[name] = _laid_over(field, base, path[1:], value)
            self._origins.put(path, origin)
        if section is not None and section.variants:
            self._drop_other_variants(section, name)

    def _drop_other_variants(self, section: SectionSpec, name: str) -> None:
        """Drop the fields of the variant that an override has replaced by another.

        What another override sets stays, so that the check can refuse it.
        """
        short, below = str(section.shorthand), self.values[name]
        if not isinstance(below, dict) or not self._origins.of((name, short)).is_override:
            return
        chosen = below.get(short)
        variant = section.variants.get(chosen) if isinstance(chosen, str) else None
        if variant is None:
            return
        for key in list(below):
            foreign = key not in variant.fields and key in section.owners
            if foreign and not self._origins.of((name, key)).is_override:
                del below[key]

    # --- Names from elsewhere ---

    def use_own_names(self) -> None:
        """Read names from elsewhere that say the same as a field, as the field itself.

        A field with two values is a problem; an override wins over what the file says by another
        name.
        """
        aliases = self._model.aliases if issubclass(self._model, Config) else {}
        names: dict[Path, Path] = {}  # field -> the name that its value was given by
        sections = [section for section in self.values.values() if isinstance(section, Mapping)]
        given = {str(key) for part in (self.values, *sections) for key in part}
        for name, alias in aliases.items():
            if name == ACCUMULATION and names.get(_MICRO, ())[-1:] == (PER_DEVICE,):
                self._accumulate_nothing(names[_MICRO])
            if name in self.values or name.rpartition(".")[2] in given:
                for path in _places(name, alias):
                    self._use_own_name(path, alias, names)

    def _use_own_name(self, path: Path, alias: Alias, names: dict[Path, Path]) -> None:
        value = _value_at(self.values, path)
        own = ABSENT if value is ABSENT else alias.convert(value, self._given)
        if own is ABSENT:
            return  # the walk explains the name
        inside = self.values
        if len(alias.path) > 1:
            inside = self.values.setdefault(alias.path[0], {})
        if not isinstance(inside, dict):
            return  # the walk reports what is no section
        del (inside if len(path) > 1 else self.values)[path[-1]]
        there, by = inside.get(alias.path[-1], ABSENT), names.get(alias.path, alias.path)
        origin, before = self._origins.of(path), self._origins.of(by)
        if there in (ABSENT, own) or (origin.is_override and not before.is_override):
            inside[alias.path[-1]] = own
            names[alias.path] = path
            text = origin.text if own == value else None
            self._origins.put(alias.path, Origin(origin.file, origin.line, text))
        elif origin.is_override or not before.is_override:
            message = f"is the same as {'.'.join(by)}, which has another value"
            self._report(path, message, value=value, hint="keep one of them")

    def _accumulate_nothing(self, path: Path) -> None:
        """Read a batch size of one device, without a size of all, as Transformers does."""
        places = (_GLOBAL, (ACCUMULATION,), ("training", ACCUMULATION))
        if all(_value_at(self.values, place) is ABSENT for place in places):
            self.values[ACCUMULATION] = 1
            self._origins.copy(path, (ACCUMULATION,))

    def _given(self, section: str, name: str) -> Any:
        """Return what the config says, or the default of a field that it leaves out."""
        value, inside = _value_at(self.values, (section, name)), self.spec.fields[section].section
        return inside.fields[name].default if value is ABSENT and inside is not None else value

    # --- The walk along the model ---

    def shape(self) -> Data:
        """Return the values that can be used; a last problem counts the unknown keys not listed."""
        shaped = self._shaped(self.spec, self.values, ())
        if (more := self._num_unknown - MOST_UNKNOWN) > 0:
            self._report(
                (), f"{more:,} more unknown keys", hint="is this a config of another kind?"
            )
        return shaped

    def _shaped(self, spec: SectionSpec, data: Mapping[Any, Any], path: Path) -> Data:
        shaped: Data = {}
        for key, value in data.items():
            name = spec.model.renamed.get(str(key), str(key))
            if name != key:
                self._origins.copy((*path, str(key)), (*path, name))
            field = spec.fields.get(name)
            if field is None:
                self._unknown(spec, (*path, name), value)
                continue
            used = self._used(field, value, (*path, name))
            if used is not ABSENT:
                shaped[name] = used
        return shaped

    def _used(self, field: FieldSpec, value: Any, path: Path) -> Any:
        if field.section is not None:
            return self._section(field.section, value, path)
        if field.item is None or not isinstance(value, list | tuple):
            return self._leaf(field, value, path)
        items = (self._section(field.item, v, (*path, str(i))) for i, v in enumerate(value))
        return [item for item in items if item is not ABSENT]

    def _section(self, section: SectionSpec, value: Any, path: Path) -> Any:
        below = value if isinstance(value, dict) else self._opened(section, value, path)
        short = section.shorthand
        if not isinstance(below, dict):
            or_plain = f", or just a value for {short}" if short else ""
            message = f"must be a section of `key: value` lines{or_plain}"
            self._report(path, message, value=value)
            return ABSENT
        return (
            self._variant(section, below, path)
            if section.variants
            else self._shaped(section, below, path)
        )

    def _variant(self, section: SectionSpec, below: Data, path: Path) -> Data:
        """Shape the variant that is named; with an unknown name, the one that fits the keys."""
        short = str(section.shorthand)
        field, path_of_name = section.fields[short], (*path, short)
        name = self._leaf(field, below.get(short, section.default), path_of_name)
        variant = section.variants.get(name) if isinstance(name, str) else None
        if variant is not None:
            return self._shaped(variant, below, path)
        if name is not ABSENT:  # else it is reported already
            self._refuse(field, name, path_of_name)
        rest = {key: value for key, value in below.items() if key != short}
        in_order = (section.variants[section.default], *section.variants.values())
        near = max(in_order, key=lambda variant: len(rest.keys() & variant.fields.keys()))
        # Fields of other variants may be right under the name that was meant.
        known = {k: v for k, v in rest.items() if k in near.fields or k not in section.owners}
        return {short: near.name, **self._shaped(near, known, path)}

    def _leaf(self, field: FieldSpec, value: Any, path: Path) -> Any:
        kinds = field.types
        if field.item is not None and str in kinds:
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
        written = self._origins.text(path) if isinstance(value, bool | int | float) else None
        return value if written is None else written

    def _refuse(self, field: FieldSpec, value: Any, path: Path) -> None:
        hint = would_work(field, value)
        self._report(path, f"must be {field.expected}", value=value, hint=hint)

    def _unknown(self, spec: SectionSpec, path: Path, value: Any) -> None:
        removed = spec.model.removed.get(path[-1])
        if removed is not None and value == removed.default:
            return  # `llmops init` wrote it.
        self._num_unknown += 1
        if self._num_unknown > MOST_UNKNOWN:
            return
        if removed is not None:
            message, hint = "is no longer a field", removed.remedy
        elif owners := spec.owners.get(path[-1]):
            message = f"is a field of {' and '.join(owners)}, not of {spec.name}"
            hint = f"delete it, or set {path[-2]}.{spec.shorthand}={owners[0]}"
        else:
            message, hint = "unknown key", ""
            if self._num_unknown <= MOST_SUGGESTED:
                hint = _suggest_key(self.spec, spec, path[-1])
        shown = ABSENT if isinstance(value, dict | list) else value
        self._report(path, message, value=shown, hint=hint)


# --- The texts of overrides ---


def is_override(word: str) -> bool:
    """Return whether a word of a command line is an override, where it can be a file as well."""
    return "=" in word and not os.path.exists(word)


def each_override(overrides: Overrides) -> Iterator[tuple[str, Any, Origin] | Problem]:
    """Yield name, value and origin of each; the last one for a field wins."""
    if isinstance(overrides, Mapping):
        for key, value in overrides.items():
            yield str(key), value, Origin(f"{OVERRIDE}{key}={_short(value)}")
        return
    for text in [overrides] if isinstance(overrides, str) else overrides:
        key, equals, written = text.partition("=")
        key, written = key.strip().lstrip("-"), written.strip()
        file = OVERRIDE + text
        if not equals or not key:
            hint = "write section.field=value, for example optimizer.learning_rate=1e-4"
            message = "not of the form key=value"
            yield Problem(path="", message=message, suggestion=hint, file=file)
            continue
        try:
            value = parse_value(written)
        except READ_ERRORS:
            value = written  # such as `s3://a: b` or `*.jsonl`: a text that YAML would want quoted
        scalar = not isinstance(value, dict | list)
        yield key, value, Origin(file, text=written.strip("\"'") if scalar else None)


def _short(value: Any) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= 40 else text[:39] + "…"


def _resolve(model: type[Section], spec: SectionSpec, key: str, origin: Origin) -> Path | Problem:
    """Return the full path of a key."""
    name = key.replace("-", "_")
    path = tuple(name.split("."))
    if len(path) > _MAX_PARTS:
        hint = "the deepest field has five parts"
        message = f"a name of {len(path):,} parts, at most {_MAX_PARTS} are read"
        return Problem(path=f"{key[:40]}…", message=message, suggestion=hint, file=OVERRIDE + "…")
    if path[0] in spec.fields:
        return path
    if len(path) == 1:
        owners = [leaf for leaf in spec.leaves if leaf[-1] == name]
        if len(owners) == 1:
            return owners[0]
        alias = model.aliases.get(name) if issubclass(model, Config) else None
        if alias is not None:
            return alias.path if alias.is_plain else path
        meant = tuple(ALIASES.get(name, "").split("."))
        if owners and meant in owners:
            return meant
        if owners:
            choices = " or ".join(".".join(owner) for owner in owners)
            hint = f'write {choices}, in Python as **{{"{".".join(owners[0])}": ...}}'
            return Problem(path=key, message="several sections have this field", suggestion=hint,
                           file=origin.file)  # fmt: skip
    hint = _suggest_path(spec, name)
    return Problem(path=key, message="unknown field", suggestion=hint, file=origin.file)


def _laid_over(field: FieldSpec | None, base: Any, path: Path, value: Any) -> Any:
    """Return `base` with the value at `path` below it."""
    if not path:
        return value.model_dump() if isinstance(value, BaseModel) else value
    if field is not None and field.item is not None and isinstance(base, list | tuple):
        base = [expand(field.item, item) for item in base]
    if isinstance(base, list) and path[0].isdecimal() and int(path[0]) < len(base):
        number = int(path[0])
        item = _laid_over(None, base[number], path[1:], value)
        return [*base[:number], item, *base[number + 1 :]]
    inside = dict(base) if isinstance(base, Mapping) else {}
    section = None if field is None else field.section
    inner = None if section is None else section.fields.get(path[0])
    # Deeper keys belong to a free mapping (`training_arguments.optim`): the rest stays.
    inside[path[0]] = _laid_over(inner, inside.get(path[0]), path[1:], value)
    return inside


# --- Names ---


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


def _suggest_path(root: SectionSpec, name: str) -> str:
    """Return what the user most likely meant by a name in an override."""
    if name in ALIASES:
        return f"did you mean {ALIASES[name]}?"
    paths = {
        path[-1] if "." not in name else ".".join(path): ".".join(path) for path in root.leaves
    }
    match = closest(name, paths)
    return (
        f"did you mean {paths[match]}?"
        if match
        else f"the sections are {listed(root.fields, limit=14)}"
    )


def _suggest_key(root: SectionSpec, section: SectionSpec, name: str) -> str:
    """Return what the user most likely meant by a key that `section` does not have."""
    here = list(section.fields)
    if sure := closest(name, here, cutoff=_SURE):
        return f"did you mean {sure}?"
    known = ALIASES.get(name.lower()) if "model" in root.fields else None
    if known and (leaf := known.split(".")[-1]) in here:
        outer = root.fields.get(known.rpartition(".")[0])
        is_here = outer and outer.section and issubclass(section.model, outer.section.model)
        if known == leaf or is_here:
            return f"did you mean {leaf}?"
    owners = [path[0] for path in root.leaves if len(path) > 1 and path[-1] == name]
    if owners:
        return f"{name} belongs under {' or '.join(f'{owner}:' for owner in owners)}"
    if name in root.fields:
        return f"{name} belongs at the top level"
    if known:
        return f"did you mean {known}?"
    if match := closest(name, here):
        return f"did you mean {match}?"
    if "training_arguments" in root.fields and name in TRAINING_ARGUMENTS:
        return f"{name} belongs under training_arguments:"
    paths = {path[-1]: ".".join(path) for path in root.leaves}
    if match := closest(name, paths, cutoff=0.75):
        return f"did you mean {paths[match]}?"
    return f"known here: {listed(here, limit=14)}"
