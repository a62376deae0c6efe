"""What a model answered to the same rows, from its first evaluation to its last."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from llmops_kernel.errors import RunError
from llmops_kernel.metrics.events import EvalEvent
from llmops_kernel.store.journal.view import RunView

_NAMED = 12
SAMPLE_FIELDS = ("step", "row", "prompt", "prediction", "reference")


@dataclass(frozen=True)
class SampledRow:
    """One row that was answered in at least one evaluation."""

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
        found = [one for one in rows if one.name == row]
        if not found:
            raise _unknown(f"row {row}", [one.name for one in rows], "row")
        rows = found
    if step is None:
        return rows
    found = [SampledRow(one.name, {step: one.answers[step]}) for one in rows if step in one.answers]
    if not found:
        steps = sorted({at for one in rows for at in one.answers})
        raise _unknown(f"step {step:,}", [f"{at}" for at in steps], "step")
    return found


def _unknown(what: str, names: Sequence[str], option: str) -> RunError:
    shown = ", ".join(names[:_NAMED]) + (", ..." if len(names) > _NAMED else "")
    return RunError(
        f"No evaluation of the run has kept an answer of {what}.",
        remedy=f"use --{option} with one of {shown}"
        if names
        else "set evaluation.generate: true, or give evaluation.prompts a list",
    )
