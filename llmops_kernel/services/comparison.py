"""Comparisons of runs: which are compared with which, and what differs between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from llmops_kernel.errors import ComparisonError
from llmops_kernel.kinds.kind import load_attribute
from llmops_kernel.kinds.registry import kind_named
from llmops_kernel.services.run_table import labels_of
from llmops_kernel.store.diff import RunDiff, diff_runs
from llmops_kernel.store.journal.training_view import TrainingView
from llmops_kernel.store.journal.view import RunView
from llmops_kernel.store.store import RunStore

if TYPE_CHECKING:
    from llmops_kernel.services.scoring.compare import OutputComparison


@dataclass(frozen=True)
class ComparedRuns:
    """Runs from the oldest to the newest, and what differs between them."""

    run_ids: tuple[str, ...]
    diffs: tuple[RunDiff, ...]
    """Differences from the base to each other run."""
    base: str
    """The run that the others are compared with: the oldest, unless another one was asked for."""
    names: Mapping[str, str]
    """A name of each run that no other of them has: `lr 2e-3 · r 16`."""


def compare(store: RunStore, run_ids: Sequence[str], *, base: str | None = None) -> ComparedRuns:
    """Order runs by their submission and compute their differences.

    Raises ComparisonError for fewer than two different runs, or a `base` that is not one of them.
    """
    distinct = dict.fromkeys(run_ids)
    if len(distinct) < 2:
        count = f"{len(distinct)} run" + ("" if len(distinct) == 1 else "s")
        raise ComparisonError(
            f"compare needs at least two different runs; it was given {count}",
            remedy="give two or more, for example: llmops compare last~1 last",
        )
    ordered = sorted(distinct, key=lambda run_id: store.record(run_id).created_s)
    first = _base(ordered, base)
    names = labels_of(store, ordered)
    rest = [run_id for run_id in ordered if run_id != first]
    diffs = tuple(_named(diff_runs(store, first, other_run), names) for other_run in rest)
    return ComparedRuns(tuple(ordered), diffs, first, names)


def has_rows(store: RunStore, run_ids: Sequence[str]) -> bool:
    """Return whether these are two runs whose outputs can be compared row by row."""
    kinds = {store.record(run_id).kind for run_id in run_ids}
    return len(run_ids) == 2 and len(kinds) == 1 and bool(_row_comparison(kinds.pop()))


def compare_outputs(store: RunStore, run_ids: Sequence[str]) -> OutputComparison:
    """Compare the outputs of two runs row by row, the older run first.

    Raises ComparisonError, also for runs of a kind whose output has no rows.
    """
    ordered = compare(store, run_ids).run_ids
    if not has_rows(store, ordered):
        kinds = " and ".join(dict.fromkeys(store.record(run_id).kind for run_id in ordered))
        raise ComparisonError(
            f"The rows of {len(ordered)} runs of kind {kinds} cannot be compared.",
            remedy="name two scoring runs",
        )
    function = load_attribute(_row_comparison(store.record(ordered[0]).kind))
    comparison: OutputComparison = function(store, *ordered)
    return comparison


def _row_comparison(kind: str) -> str:
    return kind_named(kind).output_comparison


def diff(store: RunStore, first: str, second: str) -> RunDiff:
    """Return what differs in config, code and environment, from the older run to the newer."""
    older, newer = sorted((first, second), key=lambda run_id: store.record(run_id).created_s)
    return _named(diff_runs(store, older, newer), labels_of(store, [older, newer]))


def with_predictions(
    store: RunStore, compared: ComparedRuns, views: Mapping[str, RunView]
) -> list[RunDiff]:
    """Return the differences with what the base's verdict has predicted of those that it proposes.

    A change of code or environment besides is another one.
    """
    changes = [each for each in compared.diffs if not each.code and not each.environment]
    if not any(each.config for each in changes) or not isinstance(
        views[compared.base], TrainingView
    ):
        return list(compared.diffs)
    from llmops_kernel.services.verdict import prediction_of, verdict_of  # With the planner: 0.1 s.

    base = store.record(compared.base), views[compared.base]
    answer = verdict_of(*base)
    return [
        replace(each, prediction=prediction_of(answer, base, (store.record(each.b), views[each.b])))
        if each in changes
        else each
        for each in compared.diffs
    ]


def _named(diff: RunDiff, names: Mapping[str, str]) -> RunDiff:
    return replace(diff, names=(names[diff.a], names[diff.b]))


def _base(run_ids: Sequence[str], base: str | None) -> str:
    if base is None or base in run_ids:
        return base or run_ids[0]
    raise ComparisonError(
        f"{base!r} is not one of the compared runs", remedy=f"use one of {', '.join(run_ids)}"
    )
