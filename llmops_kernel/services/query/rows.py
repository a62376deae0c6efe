"""What a run's folder says as rows of the tables; a line that cannot be read is a row, too."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_core import PydanticSerializationError

from llmops_kernel.errors import LLMOpsError
from llmops_kernel.kinds.registry import kind_named, new_view
from llmops_kernel.metrics.events import (
    AnyEvent,
    CheckpointEvent,
    EvalEvent,
    Event,
    PhaseEvent,
    RestartEvent,
    StartEvent,
    StepEvent,
    parse_event,
    parse_events,
)
from llmops_kernel.services.query.tables import REPLACED, table_of
from llmops_kernel.store.journal.history import Generation, highest_peak, worker_group
from llmops_kernel.store.journal.sample_texts import SampleTexts
from llmops_kernel.store.journal.summary import RunSummary
from llmops_kernel.store.journal.training_view import TrainingView
from llmops_kernel.store.journal.view import MAX_CELLS, RunView
from llmops_kernel.store.paths import RunFolder
from llmops_kernel.store.record import RunRecord, beginning
from llmops_kernel.store.store import RunStore
from llmops_kernel.views.run_query.row import CONFIG, config_values
from llmops_kernel.views.summary import summarise

_PART_BYTES = 64 * 1024
_THIN_EVERY = 100_000
"""So many steps are taken between two checks of how many a view holds."""
_SHOWN = 200
"""Characters of an unreadable line."""


@dataclass
class StepFile:
    """A file of a journal that has steps, and what is to be known of them to store them."""

    path: str
    run: str
    attempt: int
    group: int
    first: int
    """Number of its first step."""
    last_seq: int
    """What was written later is of the next look."""
    is_clean: bool = True
    """False where lines are broken, twice there, or make a step once more: see `clean_lines`."""
    replaced_from: int | None = None
    """A later worker group has made the steps from here on."""
    peak_ratio: float = 1.0
    """Utilizations are of a peak so many times the one they were written with."""
    undone: tuple[dict[str, float], ...] = ()
    """Restarts: steps after `from_step` up to `time_s` are made again."""

    def line(self) -> str:
        """Return what DuckDB joins with the file's lines."""
        names = ("path", "run", "first", "last_seq", "replaced_from", "peak_ratio")
        values = {name: getattr(self, name) for name in names}
        return json_line({**values, "undone": list(self.undone) or None})


@dataclass
class RunRows:
    run: str
    lines: dict[str, list[str]] = field(default_factory=dict)
    """Rows as JSON, by the name of their table."""
    files: list[StepFile] = field(default_factory=list)

    def add(self, table: str, **values: Any) -> None:
        self.lines.setdefault(table, []).append(json_line({"run": self.run, **values}))

    def add_event(self, event: Event, table: str, **values: Any) -> None:
        head = json_line({"run": self.run, **values})
        self.lines.setdefault(table, []).append(f"{head[:-1]},{_event_json(event)[1:]}")

    def unread(self, file: str, line: int | None, reason: str, text: str = "") -> None:
        self.add("unread", file=file, line=line, reason=reason, text=text[:_SHOWN])


def json_line(values: Mapping[str, Any]) -> str:
    """Return JSON that DuckDB reads: NaN and infinity as texts, no half of a surrogate pair."""
    text = json.dumps(values, ensure_ascii=False, default=str, allow_nan=True)
    if "NaN" in text or "Infinity" in text:
        text = json.dumps(_spelled(values), ensure_ascii=False, default=str)
    return text.encode(errors="replace").decode()


def _spelled(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, Mapping):
        return {str(key): _spelled(inner) for key, inner in value.items()}
    return [_spelled(inner) for inner in value] if isinstance(value, list | tuple) else value


def _event_json(event: Event) -> str:
    try:
        return event.model_dump_json(exclude_none=True)
    except PydanticSerializationError:  # Half of a surrogate pair.
        return json_line(event.model_dump(exclude_none=True))


def rows_of(store: RunStore, run_id: str) -> RunRows:
    """Read a run's folder. Raises RunNotFoundError for a run that was deleted meanwhile."""
    rows = RunRows(run_id)
    folder = RunFolder(store.root / "runs" / run_id)
    try:
        record = store.record(run_id)
        attempts = store.attempts(run_id)
    except LLMOpsError as error:
        if not folder.record.exists():
            raise
        rows.unread(folder.record.name, None, error.message)
        return rows
    reading = _Reading(rows, new_view(record.kind))
    for path in sorted(folder.journal.glob("*.jsonl")):
        reading.read(path)
    reading.finish()
    _add_settings(rows, record)
    _add_run(rows, store, record, reading.view, summarise(record, reading.view, attempts))
    return rows


class _Reading:
    """Reads the journal's files into a view, and keeps all events but the steps."""

    def __init__(self, rows: RunRows, view: RunView) -> None:
        self.rows, self.view = rows, view
        self._events: dict[tuple[str, int, str], AnyEvent] = {}
        self._cut: list[tuple[Path, int, str]] = []
        self._files: dict[str, StepFile] = {}
        self._unthinned = 0

    def read(self, path: Path) -> None:
        """Read a file up to its last whole line."""
        number, last = 0, (0, 0)
        for lines in _parts(path):
            if not lines[-1].endswith(b"\n"):
                self._cut.append((path, number + len(lines), lines.pop().decode(errors="replace")))
            events, broken = parsed(lines)
            for offset, reason in broken:
                text = lines[offset].decode(errors="replace").rstrip()
                self.rows.unread(f"journal/{path.name}", number + offset + 1, reason, text)
            steps = [event for event in events if isinstance(event, StepEvent)]
            if steps:
                is_clean = self._follows(steps, last) and not any(
                    b'"step"' in lines[offset] for offset, _ in broken
                )
                self._note(path, steps, is_clean=is_clean)
                last = (steps[-1].seq, steps[-1].step)
            others = [event for event in events if not isinstance(event, StepEvent)]
            for event in others:
                # One without a number cannot be recognised when it comes again.
                seq = event.seq or -len(self._events) - 1
                self._events.setdefault((event.stream, seq, event.kind), event)
            self._take(events, len(steps))
            number += len(lines)

    def _take(self, events: list[AnyEvent], num_steps: int) -> None:
        self.view.apply(events)
        self._unthinned += num_steps
        if self._unthinned > _THIN_EVERY:  # A view of millions of steps would not fit in memory.
            self.view.thin(max_cells=MAX_CELLS)
            self._unthinned = 0

    @staticmethod
    def _follows(steps: list[StepEvent], last: tuple[int, int]) -> bool:
        seqs = [last[0], *(step.seq for step in steps)]
        numbers = [step.step for step in steps]
        if last[1]:
            numbers = [last[1], *numbers]
        return all(a < b for a, b in pairwise(seqs)) and all(a < b for a, b in pairwise(numbers))

    def _note(self, path: Path, steps: list[StepEvent], *, is_clean: bool) -> None:
        lowest, file = min(step.step for step in steps), self._files.get(str(path))
        if file is None:
            first = steps[0]
            file = self._files[str(path)] = StepFile(
                path=str(path),
                run=self.rows.run,
                attempt=first.attempt,
                group=worker_group(first.stream),
                first=lowest,
                last_seq=0,
            )
        file.first = min(file.first, lowest)
        file.last_seq = max(file.last_seq, *(step.seq for step in steps), 0)
        file.is_clean &= is_clean

    def finish(self) -> None:
        """Add the rows of all events, once it is known what has replaced what."""
        if self.view.is_terminal:
            for path, number, text in self._cut:
                reason = "the line ends before its newline"
                self.rows.unread(f"journal/{path.name}", number, reason, text)
        kept = {(e.stream, e.seq) for e in (*self.view.evaluations, *self.view.checkpoints)}
        texts = SampleTexts()
        for event in self._events.values():
            if isinstance(event, EvalEvent):
                texts.note(event)
        for event in self._events.values():
            if isinstance(event, EvalEvent | CheckpointEvent):
                is_replaced = (event.stream, event.seq) not in kept
                shown = texts.whole(event) if isinstance(event, EvalEvent) else event
                name = f"all_{table_of(type(event))}"
                self.rows.add_event(shown, name, **{REPLACED: is_replaced})
            elif not isinstance(event, PhaseEvent):
                self.rows.add_event(event, table_of(type(event)))
        self._add_phases()
        self._relate_files()

    def _add_phases(self) -> None:
        startup = set(kind_named(self.view.kind).phases)
        for attempt in range(1, self.view.attempt + 1):
            for span in self.view.phases(attempt):
                self.rows.add(
                    "phases",
                    attempt=attempt,
                    phase=span.name,
                    began_s=span.begin_s,
                    ended_s=span.end_s,
                    is_startup=span.name in startup,
                    is_interrupted=span.interrupted,
                    detail=span.detail,
                )

    def _relate_files(self) -> None:
        """Say of each file which of its steps a later worker group has made again.

        As `history.fold` does it with the steps in memory.
        """
        self.rows.files = list(self._files.values())
        if not isinstance(self.view, TrainingView):
            return
        groups: dict[tuple[int, int], Generation] = {}
        for event in self._events.values():
            if isinstance(event, StartEvent):
                key = (event.attempt, worker_group(event.stream))
                groups.setdefault(key, Generation(key)).starts.append(event)
        for file in self.rows.files:
            key = (file.attempt, file.group)
            group = groups.setdefault(key, Generation(key))
            group.first_done = min(file.first, group.first_done or file.first)
        restarts = [e for e in self._events.values() if isinstance(e, RestartEvent)]
        has_undone = self.view.shows_undone_steps
        for file in self.rows.files:
            key = (file.attempt, file.group)
            later = [group for group in groups.values() if group.key > key]
            firsts = [g.first_done if has_undone else g.first_step for g in later]
            file.replaced_from = min((first for first in firsts if first is not None), default=None)
            peak = highest_peak(groups[key], list(groups.values()))
            file.peak_ratio = groups[key].peak_ratio(peak)
            file.undone = (
                ()
                if has_undone
                else tuple(
                    {"from_step": event.from_step, "time_s": event.time_s}
                    for event in restarts
                    if event.attempt == file.attempt
                )
            )


def _parts(path: Path) -> Iterator[list[bytes]]:
    """Yield some lines at a time; nothing of a file that is deleted meanwhile."""
    try:
        with path.open("rb") as file:
            while lines := file.readlines(_PART_BYTES):
                yield lines
    except FileNotFoundError:
        return


def parsed(lines: list[bytes]) -> tuple[list[AnyEvent], list[tuple[int, str]]]:
    """Return the events of whole lines, and (number from 0, reason) of the others."""
    if not lines:
        return [], []
    try:
        return parse_events(b"".join(lines)), []
    except ValidationError:
        pass
    events: list[AnyEvent] = []
    broken = []
    for number, line in enumerate(lines):
        if not line.strip():
            continue
        try:
            events.append(parse_event(line))
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(map(str, first["loc"]))
            broken.append((number, f"{place}: {first['msg']}" if place else first["msg"]))
    return events, broken


def clean_lines(file: StepFile) -> Iterable[tuple[str, bool]]:
    """Yield each step of a file as JSON, and whether a later line of it makes the step again."""
    steps: dict[int, StepEvent] = {}
    for lines in _parts(Path(file.path)):
        events, _ = parsed([line for line in lines if line.endswith(b"\n")])
        for event in events:
            if isinstance(event, StepEvent) and event.seq <= file.last_seq:
                steps.setdefault(event.seq or -len(steps) - 1, event)
    newest: dict[int, int] = {}
    for seq, event in steps.items():
        newest[event.step] = max(seq, newest.get(event.step, seq))
    for seq, event in steps.items():
        yield _event_json(event), newest[event.step] != seq


def _add_run(
    rows: RunRows, store: RunStore, record: RunRecord, view: RunView, summary: RunSummary
) -> None:
    notes, warmth, progress = store.notes(record.run_id), view.warmth, view.progress
    start = view.start if isinstance(view, TrainingView) else None
    figures = ((each.key, each.value(view)) for each in kind_named(record.kind).all_figures(view))
    rows.add(
        "runs",
        **_facts(record),
        state=summary.state,
        tags=list(notes.tags),
        group_name=notes.group or None,
        project=notes.project or None,
        phase=notes.phase or None,
        title=notes.title or None,
        note=notes.note or None,
        starred=notes.starred,
        began_s=summary.began_s,
        ended_s=summary.ended_s,
        message=summary.message or summary.reason or None,
        remedy=summary.remedy or None,
        attempt=summary.attempt,
        last_step=view.last_step,
        total_steps=progress.total if progress else None,
        figures={key: value for key, value in figures if value is not None},
        device=start.device if start else None,
        num_workers=start.num_workers if start else None,
        warm_processes=warmth.warm if warmth else None,
        cold_processes=warmth.cold if warmth else None,
        cold_reason="; ".join(warmth.reasons) or None if warmth else None,
    )


def _add_settings(rows: RunRows, record: RunRecord) -> None:
    for name, value in config_values(record.config).items():
        number = value if isinstance(value, int | float) and not isinstance(value, bool) else None
        if isinstance(value, bool):
            text: str | None = "true" if value else "false"
        elif isinstance(value, tuple):
            text = json.dumps(value, ensure_ascii=False)
        else:
            text = None if value is None else str(value)
        rows.add("settings", field=name.removeprefix(CONFIG), value=text, number=number)


def _facts(record: RunRecord) -> dict[str, Any]:
    model, git = record.config.get("model"), record.git
    return {
        "name": record.name,
        "kind": record.kind,
        "cluster": record.cluster,
        "submitted_s": record.created_s,
        "model": beginning(model) if isinstance(model, Mapping) else None,
        "config": record.config,
        "overrides": record.overrides,
        "config_path": record.config_path,
        "parent": record.parent,
        "sweep": record.sweep or None,
        "hidden": record.hidden,
        "provider": record.provider,
        "submitted_by": record.user or None,
        "agent": record.agent.name if record.agent else None,
        "agent_reason": record.agent.reason if record.agent else None,
        "host": record.host or None,
        "workspace_root": record.workspace_root or None,
        "code_hash": record.code_hash or None,
        "git_revision": git.revision if git else None,
        "git_branch": git.branch if git else None,
        "git_dirty": git.dirty if git else None,
    }
