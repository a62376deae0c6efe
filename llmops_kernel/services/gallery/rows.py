"""Rows of the examples, made from the menu data that is shipped with the package.

The menu data are dishes with their cuisine, course, diet and allergens (its DATASHEET.md says where
they come from). Each example needs them in the shape that its config explains.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

Row = dict[str, Any]

_SYSTEM = "You answer questions about the dishes of a menu in one short sentence."


def chat(row: Row) -> str:
    """Return a conversation of two questions and two answers, as a JSON line."""
    tags = row["tags"]
    kind = f"It is {_kind(tags)}"
    turns = [
        ("system", _SYSTEM),
        ("user", f"{_dish(row)} What kind of dish is it?"),
        ("assistant", f"{kind}, {_diet(tags)}."),
        ("user", "Which allergens does it contain?"),
        ("assistant", f"It contains {_listed(tags['allergens']) or 'none of the common ones'}."),
    ]
    return _line({"messages": [{"role": role, "content": text} for role, text in turns]})


def instruction(row: Row) -> str:
    """Return a row with `instruction`, `input` and `output`, as a JSON line."""
    asked = "Name the cuisine, the course and the allergens of this dish."
    tags = row["tags"]
    answer = f"{tags['cuisine']}, {tags['course']}, {_listed(tags['allergens']) or 'no allergens'}"
    return _line({"instruction": asked, "input": _dish(row), "output": answer})


def text(row: Row) -> str:
    """Return a dish as one line of plain text."""
    tags = row["tags"]
    return f"{_dish(row)} It is {_kind(tags)}, {_diet(tags)}."


def made(shape: Callable[[Row], str], source: Path) -> str:
    """Return the text of a data file: each row of `source` in another shape, one a line."""
    lines = source.read_text(encoding="utf-8").splitlines()
    return "".join(f"{shape(json.loads(line))}\n" for line in lines)


def _dish(row: Row) -> str:
    return f"{row['name']}: {row['description']}"


def _kind(tags: Row) -> str:
    cuisine = tags["cuisine"].capitalize()
    return f"{'an' if cuisine[0] in 'AEIOU' else 'a'} {cuisine} {tags['course']}"


def _diet(tags: Row) -> str:
    diet = "vegan" if "vegan" in tags["diet"] else "".join(tags["diet"][:1])
    return diet or "with meat"


def _listed(words: Iterable[str]) -> str:
    *first, last = [*words] or [""]
    return f"{', '.join(first)} and {last}" if first else last


def _line(row: Row) -> str:
    return json.dumps(row, ensure_ascii=False)
