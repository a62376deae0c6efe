"""The answers to each sampled row over the steps, as much of them as a panel is sent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llmops_kernel.store.journal.view import RunView
from llmops_kernel.views import format as fmt
from llmops_kernel.views.run_text.samples import SampledRow, sampled_rows
from llmops_kernel.views.run_text.words import new_words

_ROWS = 20
_STEPS = 12
_CHARACTERS = 40_000
"""Of all answers: the panel's state is sent whole with each change."""


def sample_history(view: RunView) -> list[dict[str, Any]]:
    """Return `{"row", "answers": [{"at", "words", "more"}]}` for rows answered more than once.

    `words`: pieces of the answer, each with whether the answer before lacks it. At most 20 rows
    and 12 answers of each, always the first and the last; long ones are cut.
    """
    rows = [row for row in sampled_rows(view.evaluations) if len(row.answers) > 1][:_ROWS]
    chosen = {row.name: spread_steps(sorted(row.answers), _STEPS) for row in rows}
    number = sum(map(len, chosen.values()))
    most = max(80, _CHARACTERS // max(1, number))
    return [{"row": row.name, "answers": _answers(row, chosen[row.name], most)} for row in rows]


def spread_steps(steps: Sequence[int], most: int) -> list[int]:
    """Return at most `most` of the steps, evenly spread, with the first and the last."""
    if len(steps) <= most:
        return list(steps)
    last = len(steps) - 1
    return [steps[round(index * last / (most - 1))] for index in range(most)]


def _answers(row: SampledRow, steps: Sequence[int], most: int) -> list[dict[str, Any]]:
    shown: list[dict[str, Any]] = []
    before: str | None = None
    for step in steps:
        text = row.answers[step].get("prediction", "")
        cut = text[:most]
        words = new_words(before, cut) or [(fmt.DASH, False)]
        left_out = f" … ({len(text) - most:,} more characters)" if len(text) > most else ""
        shown.append({"at": f"{step:,}", "words": words, "more": left_out})
        before = cut
    return shown
