"""Descriptions of fields: the string below each field in the source, as pydantic reads them.

Pydantic's own `use_attribute_docstrings` parses the file once a class, which is most of the time
that a worker takes to import the configs; this parses each file once.
"""

from __future__ import annotations

import ast
import inspect
import linecache
import sys
from collections.abc import Mapping
from functools import cache

from pydantic import BaseModel
from pydantic.fields import FieldInfo


def set_descriptions(model: type[BaseModel]) -> None:
    """Give the fields of a class that has just been made the descriptions of its source."""
    module = sys.modules.get(model.__module__)
    file = getattr(module, "__file__", None)
    texts = _texts(file).get(model.__name__, {}) if file else {}
    for name, text in texts.items():
        field = model.model_fields.get(name)
        if field is not None and field.description is None:
            field.description = text


def about(field: FieldInfo) -> str:
    """Return the field's description on one line."""
    return " ".join((field.description or "").split())


@cache
def _texts(file: str) -> Mapping[str, Mapping[str, str]]:
    """Return class -> field -> text of a source file; empty where it cannot be read."""
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except SyntaxError:
        return {}
    classes = (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
    return {node.name: _fields(node) for node in classes}


def _fields(node: ast.ClassDef) -> dict[str, str]:
    found = {}
    for statement, below in zip(node.body, node.body[1:], strict=False):
        if (
            isinstance(statement, ast.AnnAssign)
            and isinstance(statement.target, ast.Name)
            and isinstance(below, ast.Expr)
            and isinstance(below.value, ast.Constant)
            and isinstance(below.value.value, str)
        ):
            found[statement.target.id] = inspect.cleandoc(below.value.value)
    return found
