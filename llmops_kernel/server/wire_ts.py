"""Writes the wire models as TypeScript: `python -m llmops_kernel.server.wire_ts`."""

from __future__ import annotations

import ast
import enum
import inspect
import itertools
import sys
import textwrap
import types
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from llmops_kernel.server.wire import WIRE_MODELS
from llmops_kernel.server.wire.common import PROTOCOL, Body

TARGET = Path(__file__).parents[2] / "extension" / "src" / "wire.ts"
_HEAD = (
    "// Written by llmops_kernel/server/wire_ts.py from llmops_kernel/server/wire. Not to edit.\n"
)
_PLAIN: Mapping[Any, str] = {
    str: "string",
    int: "number",
    float: "number",
    bool: "boolean",
    type(None): "null",
    None: "null",
    Any: "unknown",
    object: "unknown",
}


def typescript(models: tuple[type[BaseModel], ...] = WIRE_MODELS) -> str:
    """Return one interface per model, and those that they contain, in order of first mention."""
    parts = [_HEAD, f"export const PROTOCOL = {PROTOCOL};\n"]
    return "\n".join([*parts, *(_interface(model) for model in _with_contained(models))])


def _with_contained(models: tuple[type[BaseModel], ...]) -> list[type[BaseModel]]:
    contained: dict[type[BaseModel], None] = {}

    def visit(annotation: Any) -> None:
        if inspect.isclass(annotation) and issubclass(annotation, BaseModel):
            if annotation not in contained:
                contained[annotation] = None
                for field in annotation.model_fields.values():
                    visit(field.annotation)
        else:
            for inner in get_args(annotation):
                visit(inner)

    for model in models:
        visit(model)
    return list(contained)


def _interface(model: type[BaseModel]) -> str:
    lines = [*_comment(inspect.getdoc(model), ""), f"export interface {model.__name__} {{"]
    descriptions = _descriptions(model)
    for name, field in model.model_fields.items():
        lines += _comment(descriptions.get(name), "  ")
        lines.append(f"  {name}{_mark(model, field)}: {_type(field.annotation)};")
    return "\n".join([*lines, "}\n"])


def _descriptions(model: type[BaseModel]) -> dict[str, str]:
    """Return the text below each field, by the field's name.

    pydantic would read them with `use_attribute_docstrings`, at a millisecond for each model that
    is imported.
    """
    texts: dict[str, str] = {}
    for base in reversed(model.__mro__[: model.__mro__.index(BaseModel)]):
        (definition,) = ast.parse(textwrap.dedent(inspect.getsource(base))).body
        assert isinstance(definition, ast.ClassDef)
        for field, below in itertools.pairwise(definition.body):
            match field, below:
                case (
                    ast.AnnAssign(target=ast.Name(id=name)),
                    ast.Expr(value=ast.Constant(value=str(text))),
                ):
                    texts[name] = inspect.cleandoc(text)
    return texts


def _mark(model: type[BaseModel], field: FieldInfo) -> str:
    """Return `?` for a field of a request that takes its default; an answer omits nothing."""
    return "?" if issubclass(model, Body) and not field.is_required() else ""


def _comment(text: str | None, indent: str) -> Iterator[str]:
    if not text:
        return
    lines = text.replace("*/", "* /").splitlines()
    if len(lines) == 1:
        yield f"{indent}/** {lines[0]} */"
        return
    yield f"{indent}/**"
    yield from (f"{indent} * {line}".rstrip() for line in lines)
    yield f"{indent} */"


def _type(annotation: Any) -> str:
    if annotation in _PLAIN:
        return _PLAIN[annotation]
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _type(arguments[0])
    if origin is Literal:
        return " | ".join(_literal(value) for value in arguments)
    if origin in (Union, types.UnionType):
        return " | ".join(dict.fromkeys(_type(argument) for argument in arguments))
    if origin in (list, tuple, set, frozenset) or annotation in (list, tuple):
        return _sequence(origin or annotation, arguments)
    if origin in (dict, Mapping) or annotation is dict:
        return f"Record<string, {_type(arguments[1]) if arguments else 'unknown'}>"
    return _named(annotation)


def _named(annotation: Any) -> str:
    if inspect.isclass(annotation) and issubclass(annotation, enum.Enum):
        return " | ".join(_literal(member.value) for member in annotation)
    if inspect.isclass(annotation) and issubclass(annotation, BaseModel):
        return annotation.__name__
    raise TypeError(f"no TypeScript is known for {annotation!r}")


def _sequence(origin: Any, arguments: tuple[Any, ...]) -> str:
    if origin is tuple and arguments and arguments[-1] is not Ellipsis:
        return f"[{', '.join(_type(argument) for argument in arguments)}]"
    inner = _type(arguments[0]) if arguments else "unknown"
    return f"({inner})[]" if " | " in inner else f"{inner}[]"


def _literal(value: Any) -> str:
    return f"'{value}'" if isinstance(value, str) else str(value).lower()


def main() -> int:
    """Exit code 1 with `--check` when the file is not what it would be."""
    text = typescript()
    if "--check" in sys.argv[1:]:
        is_same = TARGET.exists() and TARGET.read_text(encoding="utf-8") == text
        print("wire.ts: up to date" if is_same else "wire.ts differs: make wire")
        return 0 if is_same else 1
    TARGET.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
