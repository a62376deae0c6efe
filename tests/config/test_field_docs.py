"""Descriptions of fields are those that pydantic itself would read from the source."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel
from pydantic._internal._docs_extraction import extract_docstrings_from_cls

from llmops_kernel.config.models import cluster, kuberay, sections, train
from llmops_kernel.config.models.section import Section, set_descriptions

MODULES = (cluster, kuberay, sections, train)
CLASSES = [
    value
    for module in MODULES
    for value in vars(module).values()
    if isinstance(value, type)
    and issubclass(value, Section)
    and value.__module__ == module.__name__
]


class Documented(BaseModel):
    first: int = 1
    """Two
    lines."""
    second: int = 2
    third: int = 3
    # A comment between a field and its text changes nothing.
    """Third."""


def test_fields_without_a_text_have_no_description() -> None:
    set_descriptions(Documented)
    found = {name: field.description for name, field in Documented.model_fields.items()}
    assert found == {"first": "Two\nlines.", "second": None, "third": "Third."}


@pytest.mark.parametrize("model", CLASSES, ids=lambda model: model.__name__)
def test_descriptions_are_those_that_pydantic_reads(model: type[Any]) -> None:
    wanted = extract_docstrings_from_cls(model)
    found = {name: model.model_fields[name].description for name in wanted}
    assert found == wanted
