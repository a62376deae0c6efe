"""The rows of a worker's examples, where a long text is several of them."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass


@dataclass(frozen=True)
class Cursor:
    """The end of a worker's first examples: a row counts as seen with the last of its pieces."""

    rows: int
    """Rows of which all pieces are among them."""
    pieces: int = 0
    """Pieces of the next row that are among them too."""


class RowEnds:
    """Follows the rows; a thread that reads ahead adds those that are several examples.

    Questions come in the order of training: what is before the last answer is forgotten.
    """

    def __init__(self, examples: int = 0, cursor: Cursor = Cursor(0)) -> None:
        self._example, self._row = examples - cursor.pieces, cursor.rows
        """The first example of a row, and the number of that row."""
        self._several: deque[tuple[int, int]] = deque()
        """First example and number of examples of the rows behind it that are several."""

    def add(self, first: int, count: int) -> None:
        """Add a row whose examples are `count`, the first of them at `first`; 1 need not be."""
        if count != 1:
            self._several.append((first, count))

    def at(self, examples: int) -> Cursor:
        """Return where so many examples end."""
        while self._several and sum(self._several[0]) <= examples:
            first, count = self._several.popleft()
            self._row += first - self._example + 1
            self._example = first + count
        following = self._several[0][0] if self._several else examples
        if following < examples:
            return Cursor(self._row + following - self._example, examples - following)
        return Cursor(self._row + max(0, examples - self._example))
