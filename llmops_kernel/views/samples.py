"""Answers of a model to the same rows, from its first evaluation to its last."""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from llmops_kernel.errors import RunError
from llmops_kernel.metrics.events import EvalEvent
from llmops_kernel.store.journal.view import RunView
from llmops_kernel.views import format as fmt
from llmops_kernel.views.panel import ComparedSample, PanelSampledRow, SampledAnswer

_NAMED = 12
SAMPLE_FIELDS = ("step", "row", "prompt", "prediction", "reference")


@dataclass(frozen=True)
class SampledRow:
    """A row that was answered in at least one evaluation."""

    name: str
    """Its number or name; its place among the samples where the report gave none."""
    answers: dict[int, Mapping[str, str]] = field(default_factory=dict)
    """The sample of each step, by step."""

    @property
    def newest(self) -> Mapping[str, str]:
        return self.answers[max(self.answers)]


def sampled_rows(
    evaluations: Sequence[EvalEvent], names: frozenset[str] | None = None
) -> list[SampledRow]:
    """Return the rows in the order of the first report that has them; with `names` only those.

    An evaluation that was repeated after a restart counts once, as it was the last time.
    """
    rows: dict[str, SampledRow] = {}
    for event in evaluations:
        for place, sample in enumerate(event.samples, start=1):
            name = sample.get("row") or f"{place}"
            if names is not None and name not in names:
                continue
            rows.setdefault(name, SampledRow(name)).answers[event.step] = sample
    return list(rows.values())


def sample_records(rows: Iterable[SampledRow]) -> Iterator[dict[str, Any]]:
    """Yield `{"step", "row", "prompt", "prediction", "reference", ...}`, by row, then by step."""
    for row in rows:
        for step in sorted(row.answers):
            yield {"step": step, **row.answers[step], "row": row.name}


def choose_samples(
    view: RunView, *, row: str | None = None, step: int | None = None
) -> list[SampledRow]:
    """Return the rows that were asked for, with the answers of all steps or of one.

    Raises RunError, which names what there is, for a row or a step that no evaluation has.
    """
    rows = sampled_rows(view.evaluations)
    if row is not None:
        matches = [sampled for sampled in rows if sampled.name == row]
        if not matches:
            raise _unknown(f"row {row}", [sampled.name for sampled in rows], "row")
        rows = matches
    if step is None:
        return rows
    matches = [
        SampledRow(sampled.name, {step: sampled.answers[step]})
        for sampled in rows
        if step in sampled.answers
    ]
    if not matches:
        steps = sorted({step_found for sampled in rows for step_found in sampled.answers})
        raise _unknown(f"step {step:,}", [f"{step_found}" for step_found in steps], "step")
    return matches


def _unknown(subject: str, names: Sequence[str], option: str) -> RunError:
    listing = ", ".join(names[:_NAMED]) + (", ..." if len(names) > _NAMED else "")
    return RunError(
        f"No evaluation of the run has kept an answer of {subject}.",
        remedy=f"use --{option} with one of {listing}"
        if names
        else "set evaluation.generate: true, or give evaluation.prompts a list",
    )


# --- Answers to each sampled row over the steps and of several runs ---


_ROWS = 20
_STEPS = 12
_CHARACTERS = 40_000
"""Characters of all answers together: the panel's state is sent whole with each change."""


def sample_history(view: RunView, names: Sequence[str]) -> list[PanelSampledRow]:
    """Return those of the rows with these names that were answered more than once.

    At most 20 rows and 12 answers of each, always the first and the last; long ones are cut.
    """
    all_rows = sampled_rows(view.evaluations, frozenset(names))
    rows = [row for row in all_rows if len(row.answers) > 1][:_ROWS]
    steps_by_row = {row.name: spread_steps(sorted(row.answers), _STEPS) for row in rows}
    number = sum(map(len, steps_by_row.values()))
    max_characters = max(80, _CHARACTERS // max(1, number))
    return [
        PanelSampledRow(row=row.name, answers=_answers(row, steps_by_row[row.name], max_characters))
        for row in rows
    ]


def compared_samples(views: Sequence[RunView]) -> list[ComparedSample]:
    """Return the rows that several runs answered, with the newest answer of each.

    In each the words are new that the first run's answer lacks. Rows are the same if their name
    and their prompt are. At most 20 rows; long texts are cut.
    """
    by_prompt: dict[tuple[str, str], dict[int, SampledRow]] = {}
    for index, view in enumerate(views):
        for row in sampled_rows(view.evaluations):
            by_prompt.setdefault((row.name, row.newest.get("prompt", "")), {})[index] = row
    several = [(key, rows) for key, rows in by_prompt.items() if len(rows) > 1][:_ROWS]
    max_characters = max(80, _CHARACTERS // max(1, len(several) * len(views)))
    return [
        ComparedSample(
            row=name,
            prompt=prompt[:max_characters],
            reference=next(iter(rows.values())).newest.get("reference", "")[:max_characters],
            answers=_side_by_side([rows.get(index) for index in range(len(views))], max_characters),
        )
        for (name, prompt), rows in several
    ]


def _side_by_side(
    rows: Sequence[SampledRow | None], max_characters: int
) -> list[SampledAnswer | None]:
    first = next((row for row in rows if row is not None), None)
    before = first.newest.get("prediction", "")[:max_characters] if first else None
    return [
        None
        if row is None
        else _answer(row, max(row.answers), max_characters, None if row is first else before)
        for row in rows
    ]


def spread_steps(steps: Sequence[int], max_steps: int) -> list[int]:
    """Return at most `max_steps` of the steps, evenly spread, with the first and the last."""
    if len(steps) <= max_steps:
        return list(steps)
    last = len(steps) - 1
    return [steps[round(index * last / (max_steps - 1))] for index in range(max_steps)]


def _answers(row: SampledRow, steps: Sequence[int], max_characters: int) -> list[SampledAnswer]:
    answers: list[SampledAnswer] = []
    before: str | None = None
    for step in steps:
        answers.append(_answer(row, step, max_characters, before))
        before = row.answers[step].get("prediction", "")[:max_characters]
    return answers


def _answer(row: SampledRow, step: int, max_characters: int, before: str | None) -> SampledAnswer:
    text = row.answers[step].get("prediction", "")
    left_out = (
        f" … ({len(text) - max_characters:,} more characters)" if len(text) > max_characters else ""
    )
    pieces = new_words(before, text[:max_characters]) or [(fmt.DASH, False)]
    return SampledAnswer(at=f"{step:,}", words=pieces, more=left_out)


# --- New words of a text ---


Pieces = list[tuple[str, bool]]
"""Pieces of a text in order, each with whether it is new; together they are the text."""
_MOST_WORDS = 2_000


@functools.lru_cache(maxsize=1024)  # Each snapshot of a live run compares the same answers.
def new_words(before: str | None, text: str) -> Pieces:
    """Return the text in pieces; new is what a longest common subsequence of words lacks.

    Nothing is new without a text before. Of more than 2,000 words on one side (difflib takes
    quadratic time) all between a common beginning and a common end is new. Callers share the
    list and must not change it.
    """
    if before is None or not text:
        return [(text, False)] if text else []
    old, new = _words(before), _words(text)
    if max(len(old), len(new)) > _MOST_WORDS:
        return _between_ends(old, new)
    # With autojunk the frequent words of a long text would count as new.
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    return [
        ("".join(new[begin:end]), kind != "equal")
        for kind, _, _, begin, end in matcher.get_opcodes()
        if end > begin
    ]


def _words(text: str) -> list[str]:
    return re.findall(r"\s+|[^\s]+", text)


def _between_ends(old: list[str], new: list[str]) -> Pieces:
    shortest = min(len(old), len(new))
    head = next((i for i in range(shortest) if old[i] != new[i]), shortest)
    rest = shortest - head
    tail = next((i for i in range(rest) if old[-1 - i] != new[-1 - i]), rest)
    end = len(new) - tail
    parts = ((new[:head], False), (new[head:end], True), (new[end:], False))
    return [("".join(words), is_new) for words, is_new in parts if words]
