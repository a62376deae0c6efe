"""Compare messages by the values that they name: their wording may change."""

from __future__ import annotations


def missing(text: str, *values: object) -> list[str]:
    """Return those of the values that the text does not name."""
    return [str(value) for value in values if str(value) not in text]
