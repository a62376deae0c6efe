"""The grades of an LLM judge: where they are, and their places as numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

FOLDER: Final = "_judge"
"""Below the judged output: names with a line before them are no part of a table."""
ROW: Final = "row_number"
"""The column of the judged output that identifies a graded row."""


def grade_value(grade: str | None, grades: Sequence[str]) -> float | None:
    """Return a grade's place as a number: 1 for the best, 0 for the worst, evenly between them."""
    if grade is None or grade not in grades or len(grades) < 2:
        return None
    return 1 - grades.index(grade) / (len(grades) - 1)
