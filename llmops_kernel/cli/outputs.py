"""What commands print with `--json`, as types: `llmops schema --of COMMAND` gives their schemas."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, TypeAdapter

from llmops_kernel.config.problems import did_you_mean
from llmops_kernel.errors import ConfigError
from llmops_kernel.services import types
from llmops_kernel.services.data_preview import DataPreview, ShownRow
from llmops_kernel.services.queue import QueuedRun
from llmops_kernel.services.rerun import FigureChange, changes_of
from llmops_kernel.services.schedules import Schedule
from llmops_kernel.services.sweep import Trial
from llmops_kernel.services.types import ClusterInfo, FigureValue
from llmops_kernel.views.score_comparison import MetricChange

if TYPE_CHECKING:
    from llmops_kernel.api import Comparison, Rerun, Run, Sweep


class Output(BaseModel):
    model_config = ConfigDict(use_attribute_docstrings=True)


class Problem(Output):
    file: str | None
    line: int | None
    path: str
    message: str
    value: str | None
    suggestion: str


class ErrorParts(Output):
    kind: str
    """Class of the error, such as `ConfigError`; `UsageError` for a wrong command line."""
    message: str
    remedy: str
    problems: list[Problem]
    """Each mistake of a config."""


class Error(Output):
    """Printed on standard output in place of the answer, with the usual exit code."""

    error: ErrorParts


class RunState(Output):
    """A run as it is now; unknown numbers are null."""

    model_config = ConfigDict(extra="allow")

    run_id: str
    state: str
    attempt: int
    message: str
    remedy: str
    progress: dict[str, Any] | None
    cost: dict[str, Any]
    checkpoint: str | None
    outputs: list[dict[str, Any]]
    phases: list[dict[str, Any]]
    num_warnings: int
    num_failures: int
    num_restarts: int


class ShownRun(RunState):
    record: types.RunRecord
    agent_acts: list[dict[str, Any]]
    """What agents did to it."""


class ListedRun(types.RunSummary):
    label: str
    """What the run is called on every screen."""


class StoppedRun(Output):
    run_id: str
    state: str
    """State before the stop."""


class SubmittedRun(Output):
    run_id: str
    cluster: str
    state: str
    advice: list[str] = []
    """Warnings about the config."""


class RunNote(Output):
    run_id: str
    title: str
    note: str
    tags: list[str]
    starred: bool
    group: str
    project: str


class RunLog(Output):
    run_id: str
    state: str
    text: str


class Stalled(Output):
    run_id: str
    stall: dict[str, Any] | None
    """null: steps end."""


class Reported(Output):
    run_id: str
    rows: dict[str, int]
    """Rows that each tracker has got."""


class Removed(Output):
    path: str
    reason: str
    size_bytes: int
    num_files: int


class CollectedGarbage(Output):
    is_removed: bool
    """False: it would be removed (`--dry-run`)."""
    items: list[Removed]


class CheckedFile(Output):
    file: str
    valid: bool
    problems: list[Problem]
    warnings: list[Problem]
    effect: list[str]
    checked: list[str]


class Checked(Output):
    valid: bool
    files: list[CheckedFile]


class Plans(Output):
    plans: list[dict[str, Any]]
    """The config as it is comes first."""


class Difference(Output):
    path: str
    before: str
    after: str


class CodeChange(Output):
    path: str
    kind: str
    unified_diff: str
    is_code: bool


class Differences(Output):
    """From run `a` to run `b`."""

    a: str
    b: str
    config: list[Difference]
    environment: list[Difference]
    code: list[CodeChange]


class ComparedRun(Output):
    run_id: str
    name: str
    state: str
    figures: list[FigureValue]


class Compared(Output):
    base: str
    runs: list[ComparedRun]
    differences: list[Differences]
    metrics: list[MetricChange] | None
    """Of two scorings, with 95 % intervals; null for other runs."""


class SweepTable(Output):
    id: str
    cluster: str
    metric: str
    better: str
    trials: list[Trial]


class RerunPair(Output):
    before: str
    after: str | None
    state: str
    """Of the new run."""
    is_compared: bool
    """Whether both have succeeded."""


class RerunTable(Output):
    group: str
    pairs: list[RerunPair]
    changes: list[FigureChange]
    """Of each figure over the pairs, with 95 % intervals."""


class Reproduced(Output):
    answer: Literal["equal", "differs"]
    run: str
    by: str
    """The run that it is compared with."""
    unit: str
    """`step`, or `row` of a scoring: the key of the first one that differs, null if none does."""
    num_equal: int
    evaluations_equal: int
    step: int | None = None
    row: int | None = None
    in_evaluation: bool
    only_in: str
    values: list[dict[str, Any]]
    """The numbers of that step that differ."""
    reason: str | None
    reasons: list[dict[str, Any]]
    changes: list[dict[str, Any]]
    unknown: list[str]
    notes: list[str]


class Project(Output):
    project: str
    phases: dict[str, str | None]
    events: list[dict[str, Any]]


class EndedEngines(Output):
    ended: list[str]
    busy: list[str]
    """They have work, so they stay."""


class Report(Output):
    ok: bool
    duration_s: float
    checks: list[dict[str, Any]]
    run: dict[str, Any] | None


OUTPUTS: Mapping[str, Any] = {
    "error": Error,
    "up": ClusterInfo,
    "ls": list[ClusterInfo],
    "status": ClusterInfo,
    "cluster diff": types.EditEffect,
    "cluster rights": list[types.RightState],
    "engines": list[types.EngineInfo] | EndedEngines | None,
    "submit": SubmittedRun,
    "score": SubmittedRun,
    "resubmit": SubmittedRun,
    "retry": SubmittedRun,
    "stop": list[StoppedRun],
    "wait": RunState,
    "show": ShownRun,
    "logs": RunLog,
    "samples": list[dict[str, Any]],
    "compare": Compared,
    "diff": Differences,
    "stalled": Stalled,
    "report": Reported,
    "runs": list[ListedRun] | list[dict[str, Any]],
    "note": RunNote,
    "tag": RunNote,
    "query": list[dict[str, Any]],
    "queue": list[QueuedRun],
    "sweep": SweepTable,
    "rerun": RerunTable,
    "reproduce": Reproduced,
    "profile": types.ProfileEvent | None,
    "export": types.Export,
    "schedule list": list[Schedule],
    "schedule show": Schedule,
    "project list": list[dict[str, Any]],
    "project show": Project,
    "check": Checked,
    "plan": Plans,
    "data": DataPreview | ShownRow,
    "doctor": Report,
    "gc": CollectedGarbage,
    "version": dict[str, str | None],
    "bench loop": dict[str, Any],
    "bench score": dict[str, Any],
    "bench plan": dict[str, Any],
}
"""Command -> the type of what it prints with `--json`."""


def output_schema(command: str) -> dict[str, Any]:
    """Return the JSON schema of a command's output. Raises ConfigError for one without `--json`."""
    name = " ".join(command.removeprefix("llmops ").split())
    if name not in OUTPUTS:
        near = did_you_mean(name, OUTPUTS) or f"known: {', '.join(OUTPUTS)}"
        raise ConfigError(f"No command {name!r} has --json", remedy=near)
    schema = TypeAdapter(OUTPUTS[name]).json_schema(mode="serialization")
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": name, **schema}


# --- What is printed, made of runs ---


def of_note(run: Run) -> dict[str, Any]:
    """Return a run's notes."""
    notes = run.notes
    names = ("title", "note", "starred", "group", "project")
    values = {name: getattr(notes, name) for name in names}
    return RunNote(run_id=run.id, tags=list(notes.tags), **values).model_dump()


def of_submitted(run: Run) -> dict[str, Any]:
    """Return a run that was just submitted, with warnings about its config."""
    advice: Callable[[], Sequence[object]] = getattr(run.config, "advice", list)
    submitted = SubmittedRun(
        run_id=run.id,
        cluster=run.record.cluster,
        state=run.state,
        advice=[str(each) for each in advice()],
    )
    return submitted.model_dump()


def of_diff(diff: types.RunDiff) -> dict[str, Any]:
    """Return what differs between two runs."""

    def changes(rows: Sequence[Any]) -> list[Difference]:
        return [Difference(path=p, before=str(a), after=str(b)) for p, a, b in rows]

    code = [CodeChange.model_validate(each, from_attributes=True) for each in diff.code]
    return Differences(
        a=diff.a,
        b=diff.b,
        config=changes(diff.config),
        environment=changes(diff.environment),
        code=code,
    ).model_dump()


def of_comparison(compared: Comparison) -> dict[str, Any]:
    """Return runs with their figures, what differs, and metrics of two scorings."""
    from llmops_kernel.views.figures import compared_figures

    names = compared.names
    runs = [
        ComparedRun(
            run_id=run.id,
            name=names[run.id],
            state=run.view.state,
            figures=list(compared_figures(run.view)),
        )
        for run in compared.runs
    ]
    metrics = list(compared.scores.metrics) if compared.has_rows else None
    whole = Compared(
        base=compared.base.id,
        runs=runs,
        differences=[Differences(**of_diff(each)) for each in compared.diffs],
        metrics=metrics,
    )
    return whole.model_dump(mode="json")


def of_sweep(sweep: Sweep) -> dict[str, Any]:
    """Return the trials of a sweep as they are now."""
    spec = sweep.spec
    table = SweepTable(
        id=spec.id,
        cluster=spec.cluster,
        metric=spec.metric,
        better=spec.better,
        trials=list(sweep.trials()),
    )
    return table.model_dump(mode="json")


def of_rerun(target: Rerun) -> dict[str, Any]:
    """Return the pairs of a rerun, and how their figures have changed."""
    pairs = target.pairs()
    table = RerunTable(
        group=target.into,
        pairs=[
            RerunPair(
                before=pair.before.run_id,
                after=pair.after,
                state=pair.state,
                is_compared=pair.is_compared,
            )
            for pair in pairs
        ],
        changes=changes_of(pairs),
    )
    return table.model_dump(mode="json")
