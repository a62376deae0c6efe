"""The fields of a section: their types, variants and defaults, and words for what each takes.

`spec_of` returns the description of a section, made once for its class, that reading, completion,
forms and templates share. A section with variants has a field that chooses which other fields
there are; a config holds exactly those. Variants are added at any time, also by other packages, so
the field's type is their base class, whose validator looks the chosen one up.
"""

from __future__ import annotations

import math
import re
import types
from collections.abc import Iterable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any, ClassVar, Generic, Literal, Self, TypeVar, Union, cast, get_args, get_origin

import annotated_types
from pydantic import (
    BaseModel,
    ByteSize,
    Field,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    model_validator,
)
from pydantic.fields import FieldInfo
from pydantic_core import PydanticCustomError

from llmops_kernel.config.models.quantity import PATTERN as QUANTITY_PATTERN
from llmops_kernel.config.models.section import (
    CLUSTER_NAME_PATTERN,
    ENV_PATTERN,
    GROUP_PATTERN,
    MOUNT_PATTERN,
    NAME_PATTERN,
    Section,
    about,
)
from llmops_kernel.config.names import METHOD_OPTIONS, OTHER_METHODS, VALUE_ALIASES
from llmops_kernel.config.problems import closest

C = TypeVar("C", bound="Choice")


# --- Sections with variants ---


class Variants(Generic[C]):
    """The variants of one section by name, in the order they were added."""

    def __init__(self, *, default: str) -> None:
        self.default = default
        self._known: dict[str, type[C]] = {}

    def add(self, variant: type[C]) -> type[C]:
        """Register a variant under its `variant_name`; usable as a decorator."""
        self._known[variant.variant_name] = variant
        spec_of.cache_clear()
        return variant

    def remove(self, variant: type[C]) -> None:
        """Forget a variant, such as a test's."""
        del self._known[variant.variant_name]
        spec_of.cache_clear()

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._known)

    def get(self, name: object) -> type[C] | None:
        return self._known.get(name) if isinstance(name, str) else None

    def __iter__(self) -> Iterator[type[C]]:
        return iter(self._known.values())


class Choice(Section):
    """A section with variants. Its `shorthand` is the field that chooses one.

    The base class of a section declares `variants`; each variant subclasses it and sets
    `variant_name` and `summary`.
    """

    variants: ClassVar[Variants[Any]]
    variant_name: ClassVar[str] = ""
    """Value of the choosing field; empty in the base class."""
    summary: ClassVar[str] = ""
    """The variant's work, as the end of a sentence: `trains every weight`."""
    recorded_by_all: ClassVar[Mapping[str, Any]] = {}
    """Fields with their defaults that earlier releases recorded for each variant alike."""

    @model_validator(mode="wrap")
    @classmethod
    def _as_variant(
        cls, value: Any, handler: ValidatorFunctionWrapHandler, info: ValidationInfo
    ) -> Self:
        if "variants" not in cls.__dict__ or isinstance(value, cls):
            return cast("Self", handler(value))
        assert cls.shorthand is not None
        data = value if isinstance(value, Mapping) else {cls.shorthand: value}
        data = cls.resolved(data)
        name = data.get(cls.shorthand, cls.variants.default)
        variant = cls.variants.get(name)
        if variant is None:
            known = ", ".join(cls.variants.names)
            raise PydanticCustomError("choice", "{text}", {"text": f"must be one of {known}"})
        own = variant.without_recorded(data)
        return cast("Self", variant.model_validate(own, context=info.context))

    @classmethod
    def resolved(cls, data: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the data with a variant that stands for another one replaced by it."""
        return data

    @classmethod
    def without_recorded(cls, data: Mapping[str, Any]) -> dict[str, Any]:
        """Drop the fields of other variants from a record of an earlier release.

        It has all of them at their defaults; a user's own config has some, and is refused.
        """
        old = cls.recorded_by_all
        is_record = all(key in data and data[key] == value for key, value in old.items())
        foreign = {key for key in old if key not in cls.model_fields} if is_record else set()
        return {key: value for key, value in data.items() if key not in foreign}


# --- The description of a section ---


@dataclass(frozen=True, eq=False)
class FieldSpec:
    """A field of a section, its type read apart."""

    info: FieldInfo
    types: tuple[Any, ...]
    """The types that a value may have: two for `int | None`, one for `int`."""
    section: SectionSpec | None = None
    """The section that the field is."""
    item: SectionSpec | None = None
    """The section that each item of a list is."""

    @property
    def is_required(self) -> bool:
        return self.info.is_required()

    @property
    def default(self) -> Any:
        """Return the default; pydantic's mark of a missing one for a required field."""
        return self.info.get_default(call_default_factory=True)

    @cached_property
    def about(self) -> str:
        """Return the description on one line."""
        return about(self.info)

    @cached_property
    def limits(self) -> list[Any]:
        """Return what limits a value: of the field, and of one of the types that it may have."""
        annotation = self.info.annotation
        parts = get_args(annotation) if get_origin(annotation) in _UNIONS else ()
        added = [item for part in parts for item in getattr(part, "__metadata__", ())]
        return [
            *self.info.metadata,
            *(more for item in added for more in getattr(item, "metadata", ())),
        ]

    @cached_property
    def pattern(self) -> str | None:
        """Return the regular expression that a text must match, or None."""
        patterns = (getattr(item, "pattern", None) for item in self.limits)
        return next((pattern for pattern in patterns if pattern is not None), None)

    @cached_property
    def choices(self) -> list[str]:
        """Return the allowed values; empty for a field that takes any."""
        literals = (member for member in self.types if get_origin(member) is Literal)
        return [str(choice) for literal in literals for choice in get_args(literal)]

    @cached_property
    def expected(self) -> str:
        """Return words that fit after "must be": `a whole number of at least 1 or null`."""
        words = [word for member in self.types for word in _words(member, self)]
        return words[0] if len(words) == 1 else ", ".join(words[:-1]) + " or " + words[-1]


@dataclass(frozen=True, eq=False)
class SectionSpec:
    """The fields of a section, of a variant, or of all variants of a section."""

    model: type[Section]
    fields: Mapping[str, FieldSpec]
    variants: Mapping[str, SectionSpec] = field(default_factory=dict)
    """The variants by name; empty for a section that has none."""
    default: str = ""
    """The name of the variant that is meant where none is named."""
    owners: Mapping[str, list[str]] = field(default_factory=dict)
    """Field -> the names of the variants that have it; of a variant too."""

    @property
    def shorthand(self) -> str | None:
        return self.model.shorthand

    @property
    def name(self) -> str:
        """Return the variant's name; empty for a section that is none."""
        return self.model.variant_name if issubclass(self.model, Choice) else ""

    @cached_property
    def leaves(self) -> tuple[tuple[str, ...], ...]:
        """Return the paths of all fields that are not sections, those of all variants too."""
        paths: list[tuple[str, ...]] = []
        for name, spec in self.fields.items():
            below = ((),) if spec.section is None else spec.section.leaves
            paths += ((name, *path) for path in below)
        return tuple(paths)

    def chosen(self, value: Any) -> SectionSpec:
        """Return the variant that a written value chooses; itself where it names no known one."""
        if not self.variants:
            return self
        name = value.get(self.shorthand) if isinstance(value, Mapping) else value
        name = self.default if name is None else name
        return self.variants.get(name, self) if isinstance(name, str) else self


@cache
def spec_of(section: type[Section]) -> SectionSpec:
    """Return the fields of a section, made once for its class."""
    if not issubclass(section, Choice) or section.shorthand is None:
        return SectionSpec(section, _specs(section.model_fields))
    known: Variants[Choice] = section.variants
    chooses = {section.shorthand: _choosing_field(section)}
    owners: dict[str, list[str]] = {}
    for variant in known:
        for name in variant.model_fields:
            owners.setdefault(name, []).append(variant.variant_name)
    if section.variant_name:
        return SectionSpec(section, _specs(section.model_fields | chooses), owners=owners)
    fields = dict(section.model_fields)
    for variant in known:
        more = variant.model_fields.items()
        fields |= {name: _optional(info) for name, info in more if name not in fields}
    variants = {variant.variant_name: spec_of(variant) for variant in known}
    return SectionSpec(section, _specs(fields | chooses), variants, known.default, owners)


def _specs(fields: Mapping[str, FieldInfo]) -> dict[str, FieldSpec]:
    return {name: _spec(info) for name, info in fields.items()}


def _spec(info: FieldInfo) -> FieldSpec:
    members = _members(info.annotation)
    items = (
        item
        for member in members
        if get_origin(member) in (tuple, list)
        for item in get_args(member)
    )
    return FieldSpec(info, members, section=_first(members), item=_first(items))


_UNIONS = (Union, types.UnionType)


def _members(annotation: Any) -> tuple[Any, ...]:
    """Return the types of a union without what `Annotated` adds, or the one type."""
    parts = get_args(annotation) if get_origin(annotation) in _UNIONS else (annotation,)
    return tuple(part.__origin__ if hasattr(part, "__metadata__") else part for part in parts)


def _first(members: Iterable[Any]) -> SectionSpec | None:
    """Return the first of the types that is a section."""
    for member in members:
        if isinstance(member, type) and issubclass(member, Section):
            return spec_of(member)
    return None


def _optional(info: FieldInfo) -> FieldInfo:
    optional = copy(info)
    if info.is_required():
        optional.default = None
    return optional


def _choosing_field(section: type[Choice]) -> FieldInfo:
    variants = section.variants
    text = "; ".join(f"`{variant.variant_name}` {variant.summary}" for variant in variants)
    info: Any = Field(default=variants.default, description=f"{text}.")
    info.annotation = Literal[variants.names]
    assert isinstance(info, FieldInfo)
    return info


# --- Words for what a field takes ---


_NAMES = {
    NAME_PATTERN: "lower-case letters, digits and dashes, at most 40",
    CLUSTER_NAME_PATTERN: "at most 53 lower-case letters, digits and dashes, a letter first: "
    "KubeRay makes names of pods and services from it",
    GROUP_PATTERN: "at most 47 lower-case letters, digits and dashes, a letter first",
}
_PATTERNS = {
    **_NAMES,
    QUANTITY_PATTERN: "a Kubernetes quantity such as 8, 500m, 64Gi or 1.5T",
    MOUNT_PATTERN: "an absolute path such as /mnt/team",
    ENV_PATTERN: "the name of a variable such as HF_TOKEN",
}
_BYTES = re.compile(r"^\s*([0-9.]+)\s*([kmgtpe])(i?)b?\s*$", re.I)
_NUMBER = re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?")
_BOUNDS: tuple[tuple[type, str], ...] = (
    (annotated_types.Ge, "at least"),
    (annotated_types.Gt, "above"),
    (annotated_types.Le, "at most"),
    (annotated_types.Lt, "below"),
)
_LIMITS = {"at least": "ge", "above": "gt", "at most": "le", "below": "lt"}


def _words(member: Any, field: FieldSpec) -> list[str]:
    if member is type(None):
        return ["null"]
    if get_origin(member) is Literal:
        values = [str(value) for value in get_args(member)]
        return values if len(values) == 1 or len(field.types) > 1 else [
            "one of " + ", ".join(values)
        ]  # fmt: skip
    if isinstance(member, type) and issubclass(member, Section):
        return ["a section of `key: value` lines"]
    if member in (int, float):
        return [_number(member, field)]
    if member is ByteSize:
        return ["a size such as `8GiB`"]
    if member is str:
        return [_text(field)]
    if field.item is not None and get_origin(member) in (tuple, list):
        return ["a list of sections, each with `- ` before its first line"]
    return [_KINDS.get(get_origin(member) or member, "a value")]


_KINDS: dict[Any, str] = {
    bool: "true or false",
    tuple: "a list such as [a, b]",
    dict: "a mapping of `key: value` lines",
}


def _number(kind: Any, field: FieldSpec) -> str:
    noun = "a whole number" if kind is int else "a number"
    bounds = [
        f"{words} {getattr(item, _LIMITS[words])}"
        for item in field.limits
        for bound, words in _BOUNDS
        if isinstance(item, bound)
    ]
    if not bounds:
        return noun
    first = f"of {bounds[0]}" if bounds[0].startswith("at") else bounds[0]
    return " and ".join([f"{noun} {first}", *bounds[1:]])


def _text(field: FieldSpec) -> str:
    return _PATTERNS.get(field.pattern or "", "text")


def would_work(field: FieldSpec, value: Any) -> str:
    """Suggest the value closest to `value` that the field takes, else the default."""
    allowed = field.choices
    name = str(value)
    if "lora" in allowed and (words := _method_words(name, allowed)):
        return words
    if allowed:
        alias = VALUE_ALIASES.get(name.lower())
        match = alias if alias in allowed else closest(name, allowed, cutoff=0.5)
        if match:
            return f"did you mean {match}?"
    return _rewritten(field, value) or _default(field)


def _method_words(name: str, allowed: list[str]) -> str:
    """Return words for a method known from elsewhere, also a misspelt one; else an empty text."""
    like = closest(name, [*allowed, *METHOD_OPTIONS, *OTHER_METHODS], cutoff=0.75)
    if like in METHOD_OPTIONS:
        return f"{like} is an option of lora: set type: lora and {METHOD_OPTIONS[like]}: true"
    return f"{like} is another method, which is not available here" if like in OTHER_METHODS else ""


def _rewritten(field: FieldSpec, value: Any) -> str:
    kinds = field.types
    if isinstance(value, str) and (int in kinds or float in kinds):
        match = _NUMBER.search(value.replace(",", "").replace("_", ""))
        return f"write the bare number, {match.group()}" if match else ""
    if isinstance(value, float) and int in kinds and abs(value) < 1e15:
        return f"write for example {max(1, round(value))}"
    pattern = field.pattern
    if isinstance(value, str) and pattern == QUANTITY_PATTERN and (match := _BYTES.match(value)):
        unit = "k" if match[2] in "kK" and not match[3] else match[2].upper()
        return f"write for example {match[1]}{unit}{'i' if match[3] else ''}"
    if isinstance(value, str) and pattern in _NAMES:
        slug = re.sub(r"[^a-z0-9]+", "-", value.lower()).strip("-")
        tries = (name[:40].strip("-") for name in (slug, f"ray-{slug}"))
        fitting = next((name for name in tries if re.match(str(pattern), name)), "")
        return f"write for example {fitting}" if fitting else ""
    return ""


def _default(field: FieldSpec) -> str:
    if field.is_required or field.section is not None or isinstance(field.default, BaseModel):
        return ""
    return f"the default is {compact(field.default)}"


def compact(value: Any) -> str:
    """Return a default as it is written by hand: `2e-4`, `null`, `[]`."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and not math.isfinite(value):
        return f"{value:.1f}".replace("nan", ".nan").replace("inf", ".inf")
    if isinstance(value, float) and value and not 1e-3 <= abs(value) < 1e6:
        mantissa, exponent = f"{value!r}e0".split("e")[:2] if "e" in repr(value) else (
            f"{value:.12e}".split("e")
        )  # fmt: skip
        return f"{float(mantissa):g}e{int(exponent)}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(compact(item) for item in value) + "]"
    return "{}" if value == {} else str(value)
