"""The tables that `llmops query` has, generated from the event models of the journal."""

from __future__ import annotations

import ast
import hashlib
import inspect
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, get_args, get_origin

from llmops_kernel.kinds.registry import kinds
from llmops_kernel.metrics import events
from llmops_kernel.metrics.events import Event, PhaseEvent, StepEvent
from llmops_kernel.metrics.flops import possible

FORMAT = 1
"""Counts up when stored rows mean something else in the same columns."""
REPLACED = "is_replaced"
FIRST = "is_first"
_NAMES = {
    "step": "steps",
    "eval": "evaluations",
    "checkpoint": "checkpoints",
    "warning": "warnings",
    "failure": "failures",
    "restart": "restarts",
    "output": "outputs",
    "start": "starts",
    "process": "processes",
    "end": "ends",
    "queue": "queueing",
    "rows": "skipped_rows",
    "hold": "node_holds",
    "answer": "answers",
}
"""Event kind -> table; a kind that is not here has a table of its own name."""
_RENAMED = {"values": "logged"}
"""Field -> column, where SQL has the field's name for itself."""
_LEFT_OUT = frozenset({"kind", "stands_for"})
_COMMON = ("attempt", "time_s", "stream", "seq")
_FOLDED = frozenset({"steps", "evaluations", "checkpoints"})
"""Tables whose rows a later worker group may replace."""
_PLAIN = {bool: "BOOLEAN", int: "BIGINT", float: "DOUBLE", str: "VARCHAR"}


@dataclass(frozen=True, kw_only=True)
class Column:
    name: str
    type: str
    """DuckDB's."""
    about: str = ""
    computed: str = ""
    """SQL of a column that is not stored."""
    field: str = ""
    """Field of the event that it is, where that has another name."""
    is_share: bool = False
    """A utilization 0..1; others are unknown."""


@dataclass(frozen=True, kw_only=True)
class Table:
    name: str
    about: str
    columns: tuple[Column, ...]
    source: str = ""
    """Stored table that it is made of, where that is another."""
    where: str = ""
    sql: str = ""
    """Query that it is, of other tables."""

    @property
    def stored(self) -> tuple[Column, ...]:
        return tuple(column for column in self.columns if not column.computed)

    @property
    def is_stored(self) -> bool:
        return not self.sql and not self.source


def timestamp(seconds: str) -> str:
    """Return SQL of Unix seconds as a TIMESTAMP in UTC; unknown where they are no date."""
    micros = f"make_timestamp(CAST({seconds} * 1e6 AS BIGINT))"
    return f"CASE WHEN {seconds} BETWEEN -6e10 AND 2e11 THEN {micros} END"


def _time(name: str, about: str, *, of: str = "") -> tuple[Column, Column]:
    """Return a time as a TIMESTAMP and as seconds."""
    seconds = of or f"{name}_s"
    return (
        Column(name=name, type="TIMESTAMP", about=f"{about}, UTC", computed=timestamp(seconds)),
        Column(name=seconds, field=seconds, type="DOUBLE", about=f"{about}, Unix seconds"),
    )


_RUN = Column(name="run", type="VARCHAR", about="run id; `runs` has its facts")


def _text(name: str, about: str) -> Column:
    return Column(name=name, type="VARCHAR", about=about)


def _number(name: str, about: str) -> Column:
    return Column(name=name, type="BIGINT", about=about)


def _figures() -> Iterator[Column]:
    """Yield a column for each figure that every run of a kind has."""
    units: dict[str, str] = {}
    for kind in kinds():
        for figure in kind.figures:
            units.setdefault(figure.key, f"{figure.label} ({figure.unit}), of {kind.name} runs")
    for key, about in units.items():
        quoted = key.replace("'", "''")
        yield Column(name=key, type="DOUBLE", about=about, computed=f"figures['{quoted}']")


_STATE = (
    _RUN,
    _text("name", "name of the config"),
    _text("kind", "train, script, score, chat ..."),
    _text("state", "PENDING, QUEUED, RUNNING, RESTARTING, STOPPING, SUCCEEDED, FAILED, STOPPED"),
    _text("cluster", "cluster it was submitted to"),
    Column(name="tags", type="VARCHAR[]", about="tags that users gave it"),
    _text("group_name", "group that it is in"),
    _text("project", "project that it is in"),
    _text("phase", "phase that it has in its project: prototype, candidate, released"),
    _text("title", "title that users gave it"),
    _text("note", "note that users wrote"),
    Column(name="starred", type="BOOLEAN", about="whether it has a star"),
    *_time("submitted", "time of the submission"),
    *_time("began", "begin of the newest attempt"),
    *_time("ended", "end of the newest attempt, unknown while it runs"),
    Column(
        name="duration_s",
        type="DOUBLE",
        about="seconds from begin to end of the newest attempt",
        computed="ended_s - began_s",
    ),
    _text("message", "why it ended, or what it waits for"),
    _text("remedy", "what to do about that"),
    _number("attempt", "number of the newest attempt"),
    _number("last_step", "steps done; of a scoring rows"),
    _number("total_steps", "steps to do"),
)
_RECORD = (
    Column(
        name="figures",
        type="MAP(VARCHAR, DOUBLE)",
        about="every figure by its key, also the best of each metric: figures['accuracy']",
    ),
    _text("model", "id of the model, or the run that it begins with"),
    Column(
        name="config", type="JSON", about="config->>'$.method.r'; `settings` is faster with steps"
    ),
    Column(name="overrides", type="JSON", about="changes to the config at the submission"),
    _text("config_path", "file of the config"),
    _text("parent", "run that it was submitted again from"),
    _text("sweep", "sweep whose trial it is"),
    Column(name="hidden", type="BOOLEAN", about="whether lists leave it out (benchmarks)"),
    _text("provider", "provider of the cluster"),
    _text("device", "accelerator, or processor"),
    _number("num_workers", "workers"),
    _number("warm_processes", "processes of the newest attempt that started warm"),
    _number("cold_processes", "processes of the newest attempt that started cold"),
    _text("cold_reason", "why they did"),
    _text("submitted_by", "user who submitted it"),
    _text("agent", "agent that submitted it for the user; NULL: a person did"),
    _text("agent_reason", "reason that the agent gave"),
    _text("host", "host it was submitted from"),
    _text("workspace_root", "folder of its code"),
    _text("code_hash", "content hash of its code"),
    _text("git_revision", "git revision of its code"),
    _text("git_branch", "git branch of its code"),
    Column(name="git_dirty", type="BOOLEAN", about="whether the code had other changes"),
)


def _runs() -> Table:
    return Table(
        name="runs",
        about="One row a run: record, notes, state, figures.",
        columns=(*_STATE, *_figures(), *_RECORD),
    )


_SETTINGS = Table(
    name="settings",
    about="One row a field of a run's config, also those at their defaults.",
    columns=(
        _RUN,
        _text("field", "path in the config: optimizer.learning_rate"),
        _text("value", "value as a text"),
        Column(name="number", type="DOUBLE", about="value as a number, unknown of other values"),
    ),
)
_PHASES = Table(
    name="phases",
    about="One row a phase of an attempt: start-up, evaluations, saves.",
    columns=(
        _RUN,
        _number("attempt", "attempt, from 1"),
        _text("phase", "name: model_load, first_step, evaluate ..."),
        *_time("began", "its begin"),
        *_time("ended", "its end, unknown while it goes on"),
        Column(
            name="duration_s",
            type="DOUBLE",
            about="seconds from begin to end",
            computed="ended_s - began_s",
        ),
        Column(name="is_startup", type="BOOLEAN", about="whether it is before the first step"),
        Column(name="is_interrupted", type="BOOLEAN", about="whether its end was not reported"),
        _text("detail", "what it was about"),
    ),
)
_UNREAD = Table(
    name="unread",
    about="One row for each line or file that could not be read: broken, or of a newer version.",
    columns=(
        _RUN,
        _text("file", "file below the run's folder"),
        _number("line", "number of the line, from 1; unknown of a whole file"),
        _text("reason", "what is wrong with it"),
        _text("text", "its first 200 characters"),
    ),
)
_SCORES = Table(
    name="scores",
    about="One row for each metric of each evaluation of a score run. Its scored rows are files in"
    " the folder of `outputs`.",
    columns=(
        _RUN,
        _number("attempt", "attempt, from 1"),
        _text("metric", "name of the metric"),
        Column(name="value", type="DOUBLE", about="its value"),
        _number("num_rows", "rows that were scored; 0 while unknown"),
        *_time("time", "time of the report"),
    ),
    sql="SELECT run, attempt, unnest(map_keys(metrics)) AS metric, unnest(map_values(metrics))"
    " AS value, num_rows, time, time_s FROM evaluations WHERE run IN"
    " (SELECT run FROM runs WHERE kind = 'score')",
)


def _event_columns(event: type[Event], about: Mapping[str, str]) -> tuple[Column, ...]:
    """Return the columns of an event's fields; those that all events have come last."""
    own = [_of_field(event, name, about) for name in event.model_fields if name not in _COMMON]
    common = {name: _of_field(event, name, about) for name in _COMMON}
    time_s = _time("time", "time of the report")
    columns = [*(column for column in own if column is not None), common["attempt"], *time_s]
    return tuple(
        column for column in (_RUN, *columns, common["stream"], common["seq"]) if column is not None
    )


def _of_field(event: type[Event], name: str, about: Mapping[str, str]) -> Column | None:
    if name in _LEFT_OUT:
        return None
    info = event.model_fields[name]
    return Column(
        name=_RENAMED.get(name, name),
        field=name,
        type=_type_of(info.annotation),
        about=about.get(name, ""),
        is_share=any(getattr(rule, "func", None) is possible for rule in info.metadata),
    )


def _type_of(annotation: Any) -> str:
    """Return DuckDB's type for the annotation of a field; JSON for nested values."""
    if get_origin(annotation) in (typing.Union, types.UnionType):
        inner = [each for each in get_args(annotation) if each is not type(None)]
        return _type_of(inner[0]) if len(inner) == 1 else "JSON"
    origin, inner = get_origin(annotation), list(get_args(annotation))
    if origin is Literal:
        return _PLAIN.get(type(inner[0]), "JSON")
    if origin is typing.Annotated:
        return _type_of(inner[0])
    if origin is dict and inner[0] is str and inner[1] in _PLAIN:
        return f"MAP(VARCHAR, {_PLAIN[inner[1]]})"
    if origin is tuple and len(inner) == 2 and inner[1] is ... and inner[0] in _PLAIN:
        return f"{_PLAIN[inner[0]]}[]"
    return _PLAIN.get(annotation, "JSON")


def event_types() -> tuple[type[Event], ...]:
    """Return the event models that a journal may hold."""
    return get_args(get_args(events.AnyEvent)[0])


def table_of(event: type[Event]) -> str:
    """Return the name of the table of an event's rows."""
    kind = str(event.model_fields["kind"].default)
    return _NAMES.get(kind, kind)


def _event_tables(docs: Mapping[str, Mapping[str, str]]) -> Iterator[Table]:
    for event in event_types():
        if event is PhaseEvent:  # Begin and end are one row of `phases`.
            continue
        name, about = table_of(event), {**docs.get("Event", {}), **docs.get(event.__name__, {})}
        columns = _event_columns(event, about)
        if event is StepEvent:
            first = "whether it is the first step of its worker group, which pays for the start"
            columns += (Column(name=FIRST, type="BOOLEAN", about=first),)
        text = " ".join((event.__doc__ or "").split()) if event.__doc__ != Event.__doc__ else ""
        text = f"One row for each event of the kind `{event.model_fields['kind'].default}`. {text}"
        if name not in _FOLDED:
            yield Table(name=name, about=text.strip(), columns=columns)
            continue
        replaced = Column(
            name=REPLACED,
            type="BOOLEAN",
            about="whether a later worker group or attempt did it again",
        )
        every = f"all_{name}"
        yield Table(
            name=every, about=f"As {name}, with replaced ones.", columns=(*columns, replaced)
        )
        of = {"steps": "a step", "evaluations": "an evaluation"}.get(name, "a checkpoint")
        yield Table(
            name=name,
            about=f"One row {of}; one that a restart did again is here once.",
            columns=columns,
            source=every,
            where=f"NOT {REPLACED}",
        )


@cache
def _field_docs() -> dict[str, dict[str, str]]:
    """Return the text below each field of the event models, by class and field."""
    docs: dict[str, dict[str, str]] = {}
    for node in ast.parse(inspect.getsource(events)).body:
        if not isinstance(node, ast.ClassDef):
            continue
        for field, below in zip(node.body, node.body[1:], strict=False):
            match field, below:
                case (
                    ast.AnnAssign(target=ast.Name(id=name)),
                    ast.Expr(value=ast.Constant(value=str(text))),
                ):
                    docs.setdefault(node.name, {})[name] = " ".join(text.split())
    return docs


def tables(*, described: bool = False) -> tuple[Table, ...]:
    """Return all tables, those that most questions are about first.

    Without `described` the columns of events have no texts, which takes no look at the source.
    """
    every = {table.name: table for table in _event_tables(_field_docs() if described else {})}
    first = [_runs(), _SETTINGS, every.pop("steps"), every.pop("evaluations"), _SCORES, _PHASES]
    first += [every.pop(name) for name in ("warnings", "failures", "checkpoints", "outputs")]
    last = [every.pop(name) for name in sorted(every) if name.startswith("all_")]
    return (*first, *every.values(), _UNREAD, *last)


def schema_hash(every: Sequence[Table]) -> str:
    """Return a text that changes when stored rows have other columns or mean something else."""
    stored = [(t.name, [(c.name, c.type) for c in t.stored]) for t in every if t.is_stored]
    return hashlib.sha256(repr((FORMAT, sorted(stored))).encode()).hexdigest()[:12]
