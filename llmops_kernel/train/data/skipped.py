"""The warning about rows that were left out."""

from __future__ import annotations

from collections.abc import Sequence

from llmops_kernel.metrics.events import WarningEvent

SHOWN = 3


def skipped_warning(source: str, count: int, first: Sequence[str]) -> WarningEvent:
    """Return the warning about rows that were left out; `first`: what is wrong with some."""
    shown = [text.rstrip(".") for text in first[:SHOWN]]
    more = f"; and {count - len(shown):,} more" if count > len(shown) else ""
    rows = "1 row" if count == 1 else f"{count:,} rows"
    return WarningEvent(
        message=f"{rows} of {source} skipped: {'; '.join(shown)}{more}.",
        remedy="correct these rows, or set data.on_error=stop to fail on the first one",
    )
