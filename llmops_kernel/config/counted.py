"""A number with its noun, as a sentence has it."""

from __future__ import annotations

from collections.abc import Mapping


def counted(number: float | None, noun: str) -> str:
    """Return `1 worker`, `2 workers`, `0.5 GPUs` or `12,000 rows`; `– rows` for an unknown number.

    `noun` is the singular of a word whose plural ends in a plain "s".
    """
    if number is None:
        return f"– {noun}s"
    text = f"{number:,}" if isinstance(number, int) else f"{number:,g}"
    return f"{text} {noun}" if number == 1 else f"{text} {noun}s"


def counted_resources(amounts: Mapping[str, float]) -> str:
    """Return `2 CPUs and 1 GPU` of resources by Ray's names; memory, in bytes, in GiB."""
    return " and ".join(
        f"{amount / 1024**3:,.3g} GiB of {name.replace('_', ' ')}"
        if name in ("memory", "object_store_memory")
        else counted(amount, name)
        for name, amount in amounts.items()
    )
