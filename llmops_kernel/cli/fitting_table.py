"""A table that fits the terminal: it drops optional columns before it folds any text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

LONG = 16
"""Cells of text that are longer may be folded."""
MIN_COLUMN = 12
"""No column of a split table is made narrower."""


class FittingTable:
    """Columns and rows; decides when it is printed what fits into the width.

    Optional columns are left out first, in their order. Columns in `whole`, such as ids that are
    copied into other commands, are never folded where the terminal is wide enough for one. Then a
    table with `split` becomes several tables below each other, each with the first column; any
    other one folds long texts.
    """

    def __init__(
        self,
        columns: Sequence[str],
        rows: Iterable[Sequence[str]],
        *,
        right: Sequence[str] = (),
        optional: Sequence[str] = (),
        whole: Sequence[str] = (),
        split: bool = False,
    ) -> None:
        self.columns = tuple(columns)
        self.rows = [tuple(row) for row in rows]
        self.right = frozenset(right)
        self.optional = tuple(optional)
        self.whole = frozenset(whole)
        self.split = split
        self.caption = ""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        columns = list(range(len(self.columns)))
        for name in (None, *self.optional):
            if name in self.columns:
                columns.remove(self.columns.index(name))
            if self._fits(console, options, columns):
                yield self._table(columns)
                return
        if self.split and len(columns) > 2:
            yield from (self._table(part) for part in self._parts(console, options, columns))
        else:
            yield self._table(columns)

    def _fits(self, console: Console, options: ConsoleOptions, columns: Sequence[int]) -> bool:
        natural = options.update(width=10**6)
        width = Measurement.get(console, natural, self._table(columns)).maximum
        return width <= options.max_width

    def _parts(
        self, console: Console, options: ConsoleOptions, columns: Sequence[int]
    ) -> Iterable[list[int]]:
        """Yield the first column with as many of the others as fit, at least one."""
        part = [columns[0]]
        for column in columns[1:]:
            if len(part) > 1 and not self._fits(console, options, [*part, column]):
                yield part
                part = [columns[0]]
            part.append(column)
        yield part

    def _table(self, columns: Sequence[int]) -> Table:
        table = Table(box=SIMPLE_HEAD, pad_edge=False, header_style="bold")
        table.caption, table.caption_justify = self.caption or None, "left"
        for column in columns:
            is_number = self.columns[column] in self.right
            is_whole = self.columns[column] in self.whole
            cells = [self.columns[column], *(row[column] for row in self.rows)]
            longest = max(Text.from_markup(cell).cell_len for cell in cells)
            table.add_column(
                self.columns[column],
                justify="right" if is_number else "left",
                overflow="fold",
                # Numbers and words stay whole as long as a long text can give way.
                no_wrap=is_number or is_whole or longest <= LONG,
                min_width=longest if is_whole else None if is_number else min(MIN_COLUMN, longest),
            )
        for row in self.rows:
            table.add_row(*(row[column] for column in columns))
        return table
