"""When two answers are equal: texts but for white space, JSON by value."""

from __future__ import annotations

import json
import unicodedata
from typing import Any


def plain(text: str) -> str:
    """Return a text with one form of each character and of white space."""
    return " ".join(unicodedata.normalize("NFC", text).split())


def parsed(text: str) -> Any:
    """Return what a JSON text says, None for all else, such as text around an object."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def canonical(value: Any) -> str:
    """Return one text for equal JSON values: keys in order, 1.0 as 1."""
    return json.dumps(_normal(value), sort_keys=True, ensure_ascii=False)


def _normal(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _normal(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_normal(inner) for inner in value]
    if isinstance(value, str):
        return plain(value)
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value
