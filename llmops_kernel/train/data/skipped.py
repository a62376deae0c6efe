"""Warnings about rows that were left out, and about fields that are not used."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from llmops_kernel.config.row_formats import NO_TEMPLATE, Row, Use, columns_unused, uses
from llmops_kernel.errors import DataError, HookError
from llmops_kernel.metrics.events import WarningEvent

SHOWN = 3


def skipped_warning(source: str, count: int, first: Sequence[str]) -> WarningEvent:
    """Return the warning about rows that were left out; `first`: what is wrong with some."""
    listed = [text.rstrip(".") for text in first[:SHOWN]]
    omitted = f"; and {count - len(listed):,} more" if count > len(listed) else ""
    rows = "1 row" if count == 1 else f"{count:,} rows"
    return WarningEvent(
        message=f"{rows} of {source} skipped: {'; '.join(listed)}{omitted}.",
        remedy="correct these rows, or set data.on_error=stop to fail on the first one",
    )


_MOST_SHAPES = 1000
"""Rows with other fields each are no longer searched for columns."""


class Fields:
    """Counts notes on the fields of rows."""

    def __init__(self) -> None:
        self.uses: Counter[Use] = Counter()
        self._columns: dict[tuple[str, ...], list[str]] = {}

    def add(self, row: Row, row_format: str) -> None:
        """Count a row as it is before it is shaped."""
        self.uses.update(uses(row, row_format))
        shape = tuple(map(str, row))
        if shape not in self._columns and len(self._columns) < _MOST_SHAPES:
            self._columns[shape] = columns_unused(shape, row_format)

    @property
    def unused(self) -> tuple[str, ...]:
        """Return the columns that are not used, by name."""
        return tuple(sorted({name for names in self._columns.values() for name in names}))


def sayable(uses: Mapping[Use, int], tokenizer: Any) -> dict[Use, int]:
    """Return what is true with this tokenizer: most templates know tools; None: of any."""
    template = json.dumps(getattr(tokenizer, "chat_template", None))

    def is_read(use: Use) -> bool:
        return use.what == NO_TEMPLATE and (tokenizer is None or use.field in template)

    return {use: count for use, count in uses.items() if not is_read(use)}


def field_warnings(source: str, uses: Mapping[Use, int], tokenizer: Any) -> Iterator[WarningEvent]:
    """Yield a warning for each field that is not what a user may think."""
    for use, count in sorted(sayable(uses, tokenizer).items()):
        yield WarningEvent(
            message=f"{source}: {use.said(count)}.",
            remedy="if that is not meant, change the rows, or read them in format_example(row)",
        )


def unused_columns_note(columns: Iterable[str]) -> str:
    """Return which columns are not used, as information; empty if all are."""
    names = list(columns)
    omitted = f" and {len(names) - 8:,} more" if len(names) > 8 else ""
    return f"columns not used: {', '.join(names[:8])}{omitted}" if names else ""


# --- Source names in errors about rows ---


@contextmanager
def named_source(source: str) -> Iterator[None]:
    """Put the source before the message of a DataError or HookError that does not name it."""
    try:
        yield
    except (DataError, HookError) as error:
        if source in error.message:
            raise
        raise type(error)(f"{source}: {error.message}", remedy=error.remedy) from error
