"""Sections with variants: one field chooses which other fields there are.

A config holds exactly the fields of the chosen variant. Variants are added at any time, also by
other packages, so the field's type is their base class, whose validator looks the chosen one up.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from copy import copy
from typing import Any, ClassVar, Generic, Literal, Self, TypeVar, cast

from pydantic import (
    Field,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    model_validator,
)
from pydantic.fields import FieldInfo
from pydantic_core import PydanticCustomError

from llmops_kernel.config.models.section import Section

C = TypeVar("C", bound="Choice")


class Variants(Generic[C]):
    """The variants of one section by name, in the order they were added."""

    def __init__(self, *, default: str) -> None:
        self.default = default
        self._known: dict[str, type[C]] = {}

    def add(self, variant: type[C]) -> type[C]:
        """Register a variant under its `variant_name`; usable as a decorator."""
        self._known[variant.variant_name] = variant
        return variant

    def remove(self, variant: type[C]) -> None:
        """Forget a variant, such as a test's."""
        del self._known[variant.variant_name]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._known)

    def get(self, name: object) -> type[C] | None:
        return self._known.get(name) if isinstance(name, str) else None

    def owners(self, field: str) -> list[str]:
        """Return the names of the variants that have a field."""
        return [name for name, known in self._known.items() if field in known.model_fields]

    def nearest(self, keys: Iterable[str]) -> type[C]:
        """Return the variant that has most of the keys, the default one if it has as many."""
        given = set(keys)
        usual = self._known[self.default]
        nearest: type[C] = max(
            (usual, *self), key=lambda variant: len(given & variant.model_fields.keys())
        )
        return nearest

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


def chosen_in(section: type[Section], value: Any) -> Any:
    """Return the name of the variant that a written value of the section chooses, if it has some.

    It may be no known name; the default where none is written.
    """
    if not issubclass(section, Choice):
        return None
    name = value.get(section.shorthand) if isinstance(value, Mapping) else value
    return section.variants.default if name is None else name


def fields_of(section: type[Section], chosen: Any = None) -> dict[str, FieldInfo]:
    """Return the fields of a section; of one with variants those of the chosen variant.

    Without a known one, those of all variants. The choosing field takes the names of all.
    """
    if not issubclass(section, Choice) or section.shorthand is None:
        return section.model_fields
    variant = section if section.variant_name else section.variants.get(chosen)
    if variant is None:
        fields = dict(_base_of(section).model_fields)
        for known in section.variants:
            fields |= {n: _optional(f) for n, f in known.model_fields.items() if n not in fields}
    else:
        fields = dict(variant.model_fields)
    fields[section.shorthand] = _choosing_field(section)
    return fields


def _base_of(section: type[Choice]) -> type[Choice]:
    """Return the class that declares the variants."""
    return next(cls for cls in reversed(section.__mro__) if "variants" in cls.__dict__)


def _optional(field: FieldInfo) -> FieldInfo:
    optional = copy(field)
    if field.is_required():
        optional.default = None
    return optional


def _choosing_field(section: type[Choice]) -> FieldInfo:
    variants = section.variants
    about = "; ".join(f"`{variant.variant_name}` {variant.summary}" for variant in variants)
    field: Any = Field(default=variants.default, description=f"{about}.")
    field.annotation = Literal[variants.names]
    assert isinstance(field, FieldInfo)
    return field
