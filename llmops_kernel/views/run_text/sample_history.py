"""The answers to each sampled row over the steps and of several runs, as much as is shown."""

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


def sample_history(view: RunView, names: Sequence[str]) -> list[dict[str, Any]]:
    """Return `{"row", "answers": [{"at", "words", "more"}]}` for rows answered more than once.

    Of the rows with these names.

    `words`: pieces of the answer, each with whether the answer before lacks it. At most 20 rows
    and 12 answers of each, always the first and the last; long ones are cut.
    """
    found = sampled_rows(view.evaluations, frozenset(names))
    rows = [row for row in found if len(row.answers) > 1][:_ROWS]
    chosen = {row.name: spread_steps(sorted(row.answers), _STEPS) for row in rows}
    number = sum(map(len, chosen.values()))
    most = max(80, _CHARACTERS // max(1, number))
    return [{"row": row.name, "answers": _answers(row, chosen[row.name], most)} for row in rows]


def compared_samples(views: Sequence[RunView]) -> list[dict[str, Any]]:
    """Return `{"row", "prompt", "reference", "answers"}` for rows that several runs answered.

    `answers`: the newest of each run as `{"at", "words", "more"}`, in which the words are new that
    the first run's lacks; None for a run without one. Rows are the same if their name and their
    prompt are. At most 20 rows; long texts are cut.
    """
    found: dict[tuple[str, str], dict[int, SampledRow]] = {}
    for index, view in enumerate(views):
        for row in sampled_rows(view.evaluations):
            found.setdefault((row.name, row.newest.get("prompt", "")), {})[index] = row
    several = [(key, rows) for key, rows in found.items() if len(rows) > 1][:_ROWS]
    most = max(80, _CHARACTERS // max(1, len(several) * len(views)))
    return [
        {
            "row": name,
            "prompt": prompt[:most],
            "reference": next(iter(rows.values())).newest.get("reference", "")[:most],
            "answers": _side_by_side([rows.get(index) for index in range(len(views))], most),
        }
        for (name, prompt), rows in several
    ]


def _side_by_side(rows: Sequence[SampledRow | None], most: int) -> list[dict[str, Any] | None]:
    first = next((row for row in rows if row is not None), None)
    before = first.newest.get("prediction", "")[:most] if first else None
    return [
        None
        if row is None
        else _answer(row, max(row.answers), most, None if row is first else before)
        for row in rows
    ]


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
        shown.append(_answer(row, step, most, before))
        before = row.answers[step].get("prediction", "")[:most]
    return shown


def _answer(row: SampledRow, step: int, most: int, before: str | None) -> dict[str, Any]:
    text = row.answers[step].get("prediction", "")
    left_out = f" … ({len(text) - most:,} more characters)" if len(text) > most else ""
    words = new_words(before, text[:most]) or [(fmt.DASH, False)]
    return {"at": f"{step:,}", "words": words, "more": left_out}
