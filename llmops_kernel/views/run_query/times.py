"""Dates as users write them in a filter."""

from __future__ import annotations

from datetime import datetime


def seconds_of(text: str) -> float | None:
    """Return the Unix time of `2026-11-23` or `2026-11-23 14:30`, local unless it names a zone."""
    try:
        return datetime.fromisoformat(text.strip()).timestamp()
    except (ValueError, OverflowError, OSError):
        return None
