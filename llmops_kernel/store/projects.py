"""Projects: which run each phase has, the rules of the phases, and every move, in one file."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from llmops_kernel.errors import StoreError
from llmops_kernel.store.files import file_lock, private_home, store_errors
from llmops_kernel.store.run_notes import ProjectName

Phase = Literal["prototype", "candidate", "released"]
PHASES: Final[tuple[Phase, ...]] = get_args(Phase)
NONE: Final = "none"
"""A move to it takes the run out of its phase."""


class PhaseRule(BaseModel):
    """What a run must show before it gets a phase, and what happens when it does."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    scoring: str = ""
    """Name of a score config: the run's newest scoring by it is compared with that of the run that
    has the phase. Empty: nothing is checked."""
    figure: str = ""
    """Metric of these scorings, such as `exact_match`."""
    margin: float | None = Field(default=None, ge=0)
    """How much worse the run may be, with 95 % confidence; None: it must not be clearly worse."""
    archive: bool = False
    """Tag the run that is replaced as `archived`, with a line in its note."""
    export: str = ""
    """Target of an export of the run before it gets the phase, as of `llmops export --to`."""
    export_path: str = ""
    """Folder below which the export is written; empty: the current one."""
    delete_checkpoints: Literal["", "replaced", "moved"] = ""
    """Whose checkpoints are deleted once the run has the phase."""

    @property
    def text(self) -> str:
        """Return the parts that are set: `scoring menus, figure exact_match, archive`."""
        parts = {key: value for key, value in self if value not in ("", None, False)}
        return ", ".join(key if value is True else f"{key} {value}" for key, value in parts.items())


class ProjectEvent(BaseModel):
    """A line of the file: a rule that was set, a move, or an action after it."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    kind: Literal["rule", "move", "action"]
    project: ProjectName
    phase: Phase | Literal["none"]
    """Of a move the new phase."""
    time_s: float
    """Unix time."""
    user: str = ""
    host: str = ""
    run: str = ""
    old_phase: Phase | None = None
    """Phase that the run had before."""
    replaced: str = ""
    """Run that had the phase before."""
    check: str = ""
    """Result of the rule's check."""
    why: str = ""
    forced: str = ""
    """Reason for which the run was moved although the check has not passed."""
    rule: PhaseRule | None = None
    text: str = ""
    """Of an action: what was done, or why it was not."""


@dataclass
class ProjectState:
    """A project as its events have left it."""

    name: str
    holders: dict[Phase, ProjectEvent] = field(default_factory=dict)
    """The move by which the run of each phase came there."""
    rules: dict[Phase, PhaseRule] = field(default_factory=dict)
    events: list[ProjectEvent] = field(default_factory=list)
    """The oldest first."""

    def phase_of(self, run_id: str) -> Phase | None:
        """Return the phase that a run has; a run has one at most."""
        return next((phase for phase, move in self.holders.items() if move.run == run_id), None)

    def add(self, event: ProjectEvent) -> None:
        self.events.append(event)
        if event.kind == "move":
            self.holders = {k: move for k, move in self.holders.items() if move.run != event.run}
        if event.phase == NONE:
            return
        if event.kind == "move":
            self.holders[event.phase] = event
        elif event.kind == "rule" and event.rule is not None:
            self.rules[event.phase] = event.rule


def read_projects(home: Path) -> dict[str, ProjectState]:
    """Return all projects that have a rule or a move, by name. Raises StoreError."""
    path = _path(home)
    with store_errors("read", path):
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return {}
    states: dict[str, ProjectState] = {}
    for line in data.split(b"\n"):
        try:
            event = ProjectEvent.model_validate_json(line)
        except ValidationError:
            continue  # Empty, cut short by a full disk, or of a later version.
        states.setdefault(event.project, ProjectState(event.project)).add(event)
    return states


def append_event(
    home: Path,
    event: ProjectEvent,
    *,
    check: Callable[[dict[str, ProjectState]], None] = lambda _: None,
) -> None:
    """Append an event; `check` sees the projects as they are at that moment, and may raise.

    Two writers come one after the other, so the second one's `check` sees what the first has
    written. Raises StoreError.
    """
    path = _path(home)
    with store_errors("write", path):
        private_home(home)
    with file_lock(path.with_suffix(".lock"), mode=0o600), store_errors("write", path):
        check(read_projects(home))
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            size = os.fstat(fd).st_size
            is_cut = size > 0 and os.pread(fd, 1, size - 1) != b"\n"
            line = (b"\n" if is_cut else b"") + event.model_dump_json().encode() + b"\n"
            if os.write(fd, line) < len(line):
                os.ftruncate(fd, size)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(fd)
        finally:
            os.close(fd)


def require_phase(text: str) -> Phase:
    """Return the phase of that name. Raises StoreError."""
    for phase in PHASES:
        if phase == text:
            return phase
    raise StoreError(f"There is no phase {text!r}.", remedy=f"use one of: {', '.join(PHASES)}")


def day(time_s: float) -> str:
    """Return the local time of an event, to the minute."""
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(time_s))


def _path(home: Path) -> Path:
    return home / "projects.jsonl"
