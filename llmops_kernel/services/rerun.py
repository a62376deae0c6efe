"""Runs of a group once more: their recorded configs with today's code, compared pair by pair."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from llmops_kernel.config.problems import Problem, config_error, did_you_mean
from llmops_kernel.errors import ConfigError, LLMOpsError, RunNotFoundError
from llmops_kernel.metrics.events import TERMINAL
from llmops_kernel.providers.protocol import Progress
from llmops_kernel.services import submission
from llmops_kernel.services.backend import Backend
from llmops_kernel.services.batch import Batch, fitting, never_began
from llmops_kernel.services.clusters import Cluster, find
from llmops_kernel.services.runs import Run
from llmops_kernel.services.submission import Submission
from llmops_kernel.store.journal.summary import Better, FigureValue, RunSummary, Unit
from llmops_kernel.store.record import RunRecord
from llmops_kernel.store.store import RunStore
from llmops_kernel.views.summary import summary_of

# Student's t at 97.5 % for 1 to 30 degrees of freedom ("The Probable Error of a Mean",
# Biometrika 6, 1908; values as in NIST's e-Handbook of Statistical Methods, 1.3.6.7.2).
_T = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
    *(2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)
_RATIOS: frozenset[Unit] = frozenset({"per_second", "seconds", "bytes", "fraction", "money"})
"""Units whose changes are ratios; others are differences."""


@dataclass(frozen=True, kw_only=True)
class Pair:
    """A run, and the one that repeats it."""

    before: RunRecord
    after: str | None = None
    """Id of the new run; None before its submission."""
    state: str = "WAITING"
    """State of the new run."""
    figures: Mapping[str, tuple[FigureValue, FigureValue]] = field(default_factory=dict)
    """Figures that both have, by key: before and after."""
    is_compared: bool = False
    """Whether both have succeeded: others take no part in the changes."""

    @property
    def has_ended(self) -> bool:
        return self.state in TERMINAL


@dataclass(frozen=True, kw_only=True)
class FigureChange:
    """How a figure has changed over all pairs that know it."""

    key: str
    label: str
    unit: Unit
    better: Better
    num_pairs: int
    before: float
    """Mean of the runs before."""
    after: float
    is_ratio: bool
    """Whether the change is after / before (geometric mean), else after - before (mean)."""
    change: float
    interval: tuple[float, float] | None
    """95 % interval of the change, by Student's t of the pairs; None for fewer than two."""

    @property
    def is_beyond_noise(self) -> bool | None:
        """Return whether the interval is without `no change`; None where there is no interval."""
        if self.interval is None:
            return None
        none = 1.0 if self.is_ratio else 0.0
        return not self.interval[0] <= none <= self.interval[1]


def change_of(pairs: Sequence[tuple[FigureValue, FigureValue]]) -> FigureChange | None:
    """Return the change of one figure; None where no pair has two finite numbers of it."""
    known = [
        (before.value, after.value)
        for before, after in pairs
        if before.value is not None and after.value is not None
    ]
    if not known:
        return None
    first = pairs[0][0]
    is_ratio = first.unit in _RATIOS and all(b > 0 and a > 0 for b, a in known)
    changes = [math.log(after / before) if is_ratio else after - before for before, after in known]
    middle, interval = statistics.fmean(changes), None
    if len(changes) > 1:
        freedom = len(changes) - 1
        t = _T[freedom - 1] if freedom <= len(_T) else 1.96 + 2.5 / freedom
        half = t * statistics.stdev(changes) / math.sqrt(len(changes))
        interval = (middle - half, middle + half)
    if is_ratio:
        middle = math.exp(middle)
        interval = None if interval is None else (math.exp(interval[0]), math.exp(interval[1]))
    return FigureChange(
        key=first.key,
        label=first.label,
        unit=first.unit,
        better=first.better,
        num_pairs=len(known),
        before=statistics.fmean(before for before, _ in known),
        after=statistics.fmean(after for _, after in known),
        is_ratio=is_ratio,
        change=middle,
        interval=interval,
    )


def changes_of(pairs: Sequence[Pair]) -> list[FigureChange]:
    """Return the change of every figure, in the order of the runs' own lists."""
    compared = [pair for pair in pairs if pair.is_compared]
    keys = dict.fromkeys(key for pair in compared for key in pair.figures)
    changes = (change_of([p.figures[key] for p in compared if key in p.figures]) for key in keys)
    return [change for change in changes if change is not None]


# --- The runs ---


def members(store: RunStore, *, group: str = "", tag: str = "") -> list[RunRecord]:
    """Return the runs of a group, or with a tag, the oldest first.

    Raises RunNotFoundError without one, with names that are near.
    """
    records, names = [], set[str]()
    for run_id in store.run_ids():
        with suppress(LLMOpsError):  # Deleted meanwhile.
            notes = store.notes(run_id)
            names |= {notes.group} if group else set(notes.tags)
            if (group and notes.group == group) or (tag and tag in notes.tags):
                records.append(store.record(run_id))
    if records:
        return sorted(records, key=lambda record: record.created_s)
    what, name = ("group", group) if group else ("tag", tag)
    near = did_you_mean(name, names - {""})
    raise RunNotFoundError(
        f"No run has the {what} {name!r}.",
        remedy=near or f"`llmops tag RUN {'--group NAME' if group else 'NAME'}` sets it",
    )


class Rerun:
    """The runs of a group and those that repeat them, which are in the group `into`.

    Pairs are read from the store: a new run has its `parent`. So a rerun that was interrupted
    goes on with what is missing, if it is given the same `into`.
    """

    def __init__(
        self, backend: Backend, records: Sequence[RunRecord], *, into: str, cluster: str = ""
    ) -> None:
        """Check every run. Raises ConfigError with what is wrong with each, before any starts."""
        self.into = into
        self._backend, self._store, self._cluster = backend, backend.store, cluster
        self._records = {record.run_id: record for record in records}
        self._requests = _checked(records, into)
        self._new: dict[str, str] = {}
        self._find_new()

    def _find_new(self) -> None:
        for run_id in self._store.ids():
            with suppress(LLMOpsError):
                if self._store.notes(run_id).group == self.into:
                    parent = self._store.record(run_id).parent
                    if parent in self._records:
                        self._new.setdefault(str(parent), run_id)

    @property
    def num_runs(self) -> int:
        return len(self._records)

    def pairs(self) -> list[Pair]:
        """Return all pairs as they are now, in the order of the old runs."""
        return [self._pair(record) for record in self._records.values()]

    def _pair(self, record: RunRecord) -> Pair:
        new = self._new.get(record.run_id)
        after = summary_of(self._store, new) if new else None
        before = summary_of(self._store, record.run_id)
        if after is None:
            return Pair(before=record, after=new, state="DELETED" if new else "WAITING")
        is_compared = before is not None and {before.state, after.state} == {"SUCCEEDED"}
        figures = _both(before, after) if before is not None and is_compared else {}
        return Pair(
            before=record, after=new, state=after.state, figures=figures, is_compared=is_compared
        )

    def run(
        self,
        *,
        parallel: int | None = None,
        on_change: Callable[[int, int], None],
        progress: Progress | None = None,
    ) -> list[Pair]:
        """Submit what was not yet, wait for the end of all, and return the pairs.

        `on_change` gets how many have ended, and how many run. Ctrl-C leaves what runs running.
        """
        clusters: dict[str, Cluster] = {}
        for record in self._records.values():
            name = self._cluster or record.cluster
            clusters[name] = clusters.get(name) or find(name, backend=self._backend)

        def submit(run_id: str) -> Run:
            name = self._cluster or self._records[run_id].cluster
            request = self._requests[run_id]
            record = submission.submit(clusters[name], request, progress=progress)
            self._new[run_id] = record.run_id
            return Run(self._backend, record.run_id, provider=clusters[name].provider)

        configs = [request.config for request in self._requests.values()]
        most = parallel or min(fitting(cluster, configs) for cluster in clusters.values())
        batch: Batch[str] = Batch(submit, parallel=most)
        ended = {pair.before.run_id for pair in self.pairs() if pair.after and pair.has_ended}
        for run_id, new in self._new.items():
            if run_id not in ended:
                batch.live[run_id] = Run(self._backend, new)
            elif never_began(self._store, new):
                batch.live[run_id] = Run(self._backend, new).retry()
                ended.discard(run_id)
        batch.run(
            [run_id for run_id in self._records if run_id not in self._new],
            on_change=lambda: on_change(len(ended), len(batch.live)),
            on_end=ended.add,
        )
        return self.pairs()


def _both(before: RunSummary, after: RunSummary) -> dict[str, tuple[FigureValue, FigureValue]]:
    others = {figure.key: figure for figure in after.figures}
    return {f.key: (f, others[f.key]) for f in before.figures if f.key in others}


def _checked(records: Sequence[RunRecord], into: str) -> dict[str, Submission]:
    requests: dict[str, Submission] = {}
    problems: list[Problem] = []
    for record in records:
        folder = Path(record.workspace_root)
        try:
            request = submission.from_run(record)
            wrong = list(request.problems(folder)) if folder.is_dir() else [_gone(record)]
        except ConfigError as error:
            wrong = list(error.problems) or [Problem(path="", message=error.message)]
        except LLMOpsError as error:
            wrong = [Problem(path="", message=error.message, suggestion=error.remedy)]
        else:
            requests[record.run_id] = replace(request, group=into, checks=False)
        problems += [replace(each, file=f"run {record.run_id}", line=None) for each in wrong]
    if problems:
        raise config_error(problems, remedy="take a run out: llmops tag RUN --group ''")
    return requests


def _gone(record: RunRecord) -> Problem:
    message = "the folder of its code is not there any more"
    return Problem(path="workspace", message=message, value=record.workspace_root)


def new_group(name: str, *, now_s: float | None = None) -> str:
    """Return a name of the group of the new runs: `baseline-again-261128-1130`."""
    moment = time.gmtime(time.time() if now_s is None else now_s)
    return f"{name[:40]}-again-{time.strftime('%y%m%d-%H%M%S', moment)}"
