"""Sections with variants: one field chooses which other fields there are.

The real models hold exactly the fields of the chosen variant. Readers and editors walk a *view*
of them: a model in which each such section is the chosen variant, and its choosing field lists
all names. `view_for` makes the view for some data, `widest` one with the fields of all variants.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Annotated, Any, ClassVar, Generic, Literal, Self, TypeVar, cast

from pydantic import (
    Field,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    create_model,
    model_validator,
)
from pydantic.fields import FieldInfo
from pydantic_core import PydanticCustomError

from llmops_kernel.config.models.describe import section_of
from llmops_kernel.config.models.section import Section

C = TypeVar("C", bound="Choice")
S = TypeVar("S", bound=Section)


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
    """What the variant does, as the end of a sentence: `trains every weight`."""
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


def view_for(model: type[S], data: Mapping[str, Any]) -> type[S]:
    """Return `model` with each section that has variants replaced by the one that `data` names.

    A section that names no known variant gets the fields of all.
    """
    chosen = []
    for name, section in choices_of(model):
        assert section.shorthand is not None
        given = data.get(name)
        if isinstance(given, Section):
            given = given.model_dump()
        inside = given if isinstance(given, Mapping) else {section.shorthand: given}
        value = inside.get(section.shorthand)
        value = section.variants.default if value is None else value
        chosen.append((name, section.variants.get(value)))
    return _view(model, tuple(chosen), _registered(model)) if chosen else model


def widest(model: type[S]) -> type[S]:
    """Return `model` with the fields of all variants in each section that has some."""
    chosen = tuple((name, None) for name, _ in choices_of(model))
    return _view(model, chosen, _registered(model)) if chosen else model


def choices_of(model: type[Section]) -> Iterator[tuple[str, type[Choice]]]:
    """Yield the name and class of each section that has variants."""
    for name, field in model.model_fields.items():
        section = section_of(field.annotation)
        if section is not None and issubclass(section, Choice):
            yield name, section


def _registered(model: type[Section]) -> tuple[type[Choice], ...]:
    """Return all variants of all sections: a view is made again when one is added."""
    return tuple(variant for _, section in choices_of(model) for variant in section.variants)


@cache
def _view(
    model: type[S],
    chosen: tuple[tuple[str, type[Choice] | None], ...],
    _registered: tuple[type[Choice], ...],
) -> type[S]:
    fields: dict[str, Any] = {}
    for name, variant in chosen:
        section = section_of(model.model_fields[name].annotation)
        assert section is not None
        assert issubclass(section, Choice)
        view = variant_view(variant) if variant is not None else _all_variants(section)
        about = model.model_fields[name].description
        fields[name] = (view, Field(default_factory=view, description=about))
    return cast("type[S]", create_model(model.__name__, __base__=model, **fields))


def variant_view(variant: type[Choice]) -> type[Choice]:
    """Return a variant whose choosing field takes all names and describes them."""
    name = cast("str", variant.shorthand)
    fields: dict[str, Any] = {name: _choosing_field(variant)}
    return create_model(variant.__name__, __base__=variant, **fields)


def _all_variants(section: type[Choice]) -> type[Choice]:
    """Return a section with the fields of all variants, each of them optional."""
    fields: dict[str, Any] = {cast("str", section.shorthand): _choosing_field(section)}
    for variant in section.variants:
        for name, field in variant.model_fields.items():
            if name not in fields:
                default = _default(field)
                wanted = (
                    Annotated[(field.annotation, *field.metadata)]
                    if field.metadata
                    else (field.annotation)
                )
                fields[name] = (wanted, Field(default=default, description=field.description))
    base = _base_of(section)
    view = create_model(base.__name__, __base__=base, **fields)
    return cast("type[Choice]", view)


def _default(field: FieldInfo) -> Any:
    return None if field.is_required() else field.get_default(call_default_factory=True)


def _base_of(section: type[Choice]) -> type[Choice]:
    """Return the class that declares the variants."""
    return next(cls for cls in reversed(section.__mro__) if "variants" in cls.__dict__)


def _choosing_field(section: type[Choice]) -> tuple[Any, Any]:
    variants = section.variants
    about = "; ".join(f"`{variant.variant_name}` {variant.summary}" for variant in variants)
    return Literal[variants.names], Field(default=variants.default, description=f"{about}.")
