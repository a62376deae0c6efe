"""Tables of a run that every kind may have: samples of its answers, and numbers of its members."""

from __future__ import annotations

from typing import Any

from llmops_kernel.kinds.registry import kind_named
from llmops_kernel.metrics.events import ProgressEvent
from llmops_kernel.store.journal.view import RunView
from llmops_kernel.views import format as fmt
from llmops_kernel.views.run_text.samples import sample_history

Json = dict[str, Any]
SAMPLE_PAGE = 50
"""So many samples are sent at once; a screen asks for the next ones."""
_FIRST = ("row", "prompt", "prediction", "reference")
_LABELS = {"prediction": "answer"}


def sample_table(view: RunView, *, first: int = 0, most: int | None = None) -> Json:
    """Return the newest samples: one row each, a column for each field of them.

    `most` of them from `first` on; `total` says how many there are.
    """
    event = view.sampled
    if event is None:
        return {"at": "", "columns": [], "rows": [], "history": [], "first": first, "total": 0}
    samples = event.samples[first:] if most is None else event.samples[first : first + most]
    places = range(first + 1, first + 1 + len(samples))
    shown = [sample.get("row") or f"{place}" for place, sample in zip(places, samples, strict=True)]
    given = dict.fromkeys(name for sample in event.samples for name in sample)
    names = [name for name in _FIRST if name in given]
    names += [name for name in given if name not in names]
    unit = view.progress.unit if view.progress else "steps"
    at = f"at step {event.step:,}" if unit == "steps" else f"after {event.step:,} {unit}"
    if event.answers_s is not None:
        at += f"; all answers were generated in {fmt.seconds(event.answers_s)}"
    return {
        "at": at,
        "columns": [_LABELS.get(name, name.replace("_", " ")) for name in names],
        "rows": [[sample.get(name, fmt.DASH) for name in names] for sample in samples],
        "history": sample_history(view, shown),
        "first": first,
        "total": len(event.samples),
    }


def member_table(view: RunView) -> Json:
    """Return one row a member of a run that works, with the columns that at least one has."""
    if view.is_terminal:
        return {"columns": [], "rows": []}  # Rates of its last seconds.
    numbers = {name: ProgressEvent(done=0, values=values) for name, values in view.members.items()}
    rows: dict[str, list[str]] = {name: [name] for name in numbers}
    labels = [""]
    # The first column is the x axis of the charts: how far the run as a whole is.
    for column in kind_named(view.kind).all_columns(view)[1:]:
        found = {name: column.value(event) for name, event in numbers.items()}
        if any(value is not None for value in found.values()):
            labels.append(column.label)
            for name, value in found.items():
                rows[name].append(fmt.by_unit(value, column.unit))
    return {"columns": labels, "rows": list(rows.values())}
