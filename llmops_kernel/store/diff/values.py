"""A value that differs, and how it is shown."""

from __future__ import annotations

import json
from typing import Any

Difference = tuple[str, Any, Any]
"""(dotted path, value in the first run, value in the second)."""


def value_text(value: Any) -> str:
    """Return the value as JSON writes it; a string without quotes."""
    return value if isinstance(value, str) else json.dumps(value, default=str, ensure_ascii=False)
