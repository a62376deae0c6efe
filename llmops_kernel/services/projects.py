"""Projects: moves of runs through prototype, candidate and released, as the phases' rules allow."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, cast

from pydantic import ValidationError

from llmops_kernel.errors import LLMOpsError, RunNotFoundError, RunStateError, StoreError
from llmops_kernel.jobs.submit import user_name
from llmops_kernel.services.backend import Backend
from llmops_kernel.services.export import export_run
from llmops_kernel.services.export_source import TARGETS, Options
from llmops_kernel.services.project_rule import Check, OldCheckpoints, check_rule, old_checkpoints
from llmops_kernel.services.runs import Run
from llmops_kernel.store.export_job import MANIFEST
from llmops_kernel.store.files import store_errors
from llmops_kernel.store.projects import (
    NONE,
    PHASES,
    Phase,
    PhaseRule,
    ProjectEvent,
    ProjectState,
    append_event,
    day,
    read_projects,
    require_phase,
)
from llmops_kernel.store.run_notes import change_tags
from llmops_kernel.store.store import remove_tree
from llmops_kernel.views import format as fmt

ARCHIVED = "archived"
"""Tag of a run that another one has replaced."""
_HUB = "hub"
Report = Callable[[str], None]

# --- A move: planned, shown, done ---


@dataclass(frozen=True, kw_only=True)
class MovePlan:
    """What a move would do. `str()` is what `llmops project move --dry-run` prints."""

    project: str
    run: str
    phase: Phase | Literal["none"]
    old_phase: Phase | None
    replaced: str
    """Run that has the phase now; empty for none."""
    check: Check
    archives: bool
    export: Options | None
    exported: bool
    """Whether that export is there already."""
    checkpoints: OldCheckpoints | None

    @property
    def actions(self) -> tuple[str, ...]:
        """Return what happens besides the move, in words."""
        parts = []
        if self.export is not None:
            done = "is exported already" if self.exported else "export"
            parts.append(f"{done}: {self.run} to {self.export.to} in {self.export.path}")
        if self.archives and self.replaced:
            parts.append(f"tag {self.replaced} as {ARCHIVED}")
        return (*parts, *([self.checkpoints.text] if self.checkpoints else []))

    def __str__(self) -> str:
        lines = [
            f"{self.run}: {self.old_phase or 'no phase'} -> {self.phase} of {self.project}",
            f"replaces: {self.replaced or 'no run'}",
            f"check: {'passed' if self.check.passed else 'not passed'}: {self.check.text}",
            *([f"next: {self.check.remedy}"] if self.check.remedy else []),
            *(f"then: {action}" for action in self.actions),
        ]
        return "\n".join(lines)


class Project:
    """A project of a store: its phases, their rules and its history."""

    def __init__(self, backend: Backend, name: str) -> None:
        """Raise StoreError for a name that is empty or too long."""
        self.name = name.strip()
        if not 0 < len(self.name) <= 60:
            raise StoreError(
                f"{name!r} cannot be the name of a project.", remedy="use 1 to 60 characters"
            )
        self._backend, self._store = backend, backend.store

    @property
    def state(self) -> ProjectState:
        return read_projects(self._store.root).get(self.name) or ProjectState(self.name)

    @property
    def phases(self) -> dict[str, str | None]:
        """Return the run of each phase."""
        holders = self.state.holders
        return {phase: holders[phase].run if phase in holders else None for phase in PHASES}

    @property
    def runs(self) -> list[str]:
        """Return the ids of its runs, newest first."""
        return [each for each in self._store.ids() if self._project_of(each) == self.name]

    def _project_of(self, run_id: str) -> str:
        with suppress(LLMOpsError):  # Deleted meanwhile.
            return self._store.notes(run_id).project
        return ""

    def table(self) -> list[list[str]]:
        """Return a line for each phase: its name, the run, since when, who moved it, the rule."""
        state, lines = self.state, []
        for phase in PHASES:
            held = state.holders.get(phase)
            about = [held.run, day(held.time_s), held.user or fmt.DASH] if held else [fmt.DASH] * 3
            lines.append([phase, *about, state.rules.get(phase, PhaseRule()).text or fmt.DASH])
        return lines

    def rule(self, phase: str, *, clear: bool = False, **changes: Any) -> PhaseRule:
        """Return the rule of a phase, with changes to fields of `PhaseRule` if some are given.

        `scoring` may also be a run, whose config's name is meant. `clear` begins with an empty
        rule. Raises StoreError.
        """
        named = require_phase(phase)
        known = PhaseRule() if clear else self.state.rules.get(named, PhaseRule())
        if not changes and not clear:
            return known
        if scoring := changes.get("scoring"):
            changes["scoring"] = self._scoring_name(str(scoring))
        try:
            rule = PhaseRule.model_validate({**known.model_dump(), **changes})
        except ValidationError as error:
            first = error.errors()[0]
            raise StoreError(
                f"{'.'.join(map(str, first['loc']))}: {first['msg']}",
                remedy="`llmops project rule --help` lists what a rule has",
            ) from None
        if bool(rule.scoring) != bool(rule.figure):
            raise StoreError(
                "A rule compares a figure of a scoring, and one of the two is missing.",
                remedy="give both: --scoring NAME --figure exact_match",
            )
        if rule.export and (rule.export not in TARGETS or rule.export == _HUB):
            local = ", ".join(target for target in TARGETS if target != _HUB)
            raise StoreError(f"A move cannot export to {rule.export!r}.", remedy=f"use: {local}")
        unknown = changes.keys() - PhaseRule.model_fields.keys()
        if unknown:
            raise StoreError(
                f"A rule has no field {min(unknown)!r}.",
                remedy=f"use one of: {', '.join(PhaseRule.model_fields)}",
            )
        append_event(self._store.root, self._event("rule", named, rule=rule))
        return rule

    def _scoring_name(self, ref: str) -> str:
        if any(row.name == ref for row in self._store.listed()):
            return ref
        with suppress(RunNotFoundError):
            return self._store.record(ref).name
        return ref.removesuffix(".score.yaml")

    def plan(self, run_id: str, to: str) -> MovePlan:
        """Return what a move would do; changes nothing. `to` is a phase, or `none`.

        Raises RunStateError for a run of another project, or one that has the phase already.
        """
        phase = NONE if to == NONE else require_phase(to)
        run_id, state = self._store.resolve(run_id), self.state
        own = self._store.notes(run_id).project
        if own not in ("", self.name):
            raise RunStateError(
                f"Run {run_id} is in project {own}, not in {self.name}.",
                remedy=f"llmops tag {run_id} --project '{self.name}'",
            )
        old_phase = state.phase_of(run_id)
        if (old_phase or NONE) == phase:
            raise RunStateError(
                f"Run {run_id} is {old_phase or 'in no phase'} of {self.name} already.",
                remedy=f"llmops project show '{self.name}'",
            )
        rule = PhaseRule() if phase == NONE else state.rules.get(phase, PhaseRule())
        held = None if phase == NONE else state.holders.get(phase)
        replaced = held.run if held is not None else ""
        export = None
        if rule.export:
            folder = Path(rule.export_path or ".").expanduser().absolute()
            export = Options(to=rule.export, path=str(folder / f"{run_id}-{rule.export}"))
        return MovePlan(
            project=self.name,
            run=run_id,
            phase=cast("Phase", phase),
            old_phase=old_phase,
            replaced=replaced,
            check=check_rule(self._store, rule, run_id, holder=replaced),
            archives=rule.archive,
            export=export,
            exported=export is not None and (Path(str(export.path)) / MANIFEST).exists(),
            checkpoints=self._old(rule, run_id, replaced),
        )

    def _old(self, rule: PhaseRule, moved: str, replaced: str) -> OldCheckpoints | None:
        run_id = {"moved": moved, "replaced": replaced}.get(rule.delete_checkpoints, "")
        if not run_id or (run_id == replaced and not self._store.knows(run_id)):
            return None
        used = {
            move.run: f"it is {phase} of {state.name}"
            for state in read_projects(self._store.root).values()
            for phase, move in state.holders.items()
            if (state.name, move.run) not in ((self.name, moved), (self.name, replaced))
        }
        with suppress(RunNotFoundError):
            return old_checkpoints(self._store, run_id, used=used)
        return None  # The run that had the phase is deleted.

    def move(
        self,
        run_id: str,
        to: str,
        *,
        why: str = "",
        force: str = "",
        do_export: Callable[..., Any] = export_run,
        report: Report | None = None,
    ) -> MovePlan:
        """Move a run to a phase, after its rule was checked; return what was done.

        `force` is a reason, kept in the history, to move a run whose check has not passed. An
        export comes first: where it fails, nothing is moved. Checkpoints go last. Raises
        RunStateError where the check has not passed, or somebody has moved a run meanwhile.
        """
        plan, report = self.plan(run_id, to), report or (lambda _: None)
        if not plan.check.passed and not force.strip():
            raise RunStateError(
                f"Run {plan.run} cannot be {plan.phase} of {self.name}: {plan.check.text}",
                remedy=plan.check.remedy,
            )
        done = []
        if plan.export is not None:
            if not plan.exported:
                do_export(Run(self._backend, plan.run), plan.export, progress=report)
            done.append(f"exported {plan.run} to {plan.export.to} in {plan.export.path}")
        event = self._event(
            "move",
            plan.phase,
            run=plan.run,
            old_phase=plan.old_phase,
            replaced=plan.replaced,
            check=plan.check.text,
            why=why.strip(),
            forced="" if plan.check.passed else force.strip(),
        )
        append_event(self._store.root, event, check=partial(_require_unchanged, plan))
        self.note_phases()
        done += self._finish(plan)
        for text in done:
            append_event(
                self._store.root, self._event("action", plan.phase, run=plan.run, text=text)
            )
            report(text)
        return plan

    def _finish(self, plan: MovePlan) -> Iterator[str]:
        """Archive and delete what the plan says; yield what was done."""
        if plan.archives and plan.replaced:
            with suppress(RunNotFoundError):
                notes = self._store.notes(plan.replaced)
                line = f"{day(time.time())}: replaced as {plan.phase} of {self.name} by {plan.run}"
                change_tags(self._store.folder(plan.replaced), add=[ARCHIVED])
                self._store.annotate(plan.replaced, note=f"{notes.note}\n{line}".strip())
                yield f"tagged {plan.replaced} as {ARCHIVED}"
        if plan.checkpoints is None:
            return
        for folder in plan.checkpoints.folders:
            with store_errors("delete", folder):
                remove_tree(folder)
        yield plan.checkpoints.text.replace("delete", "deleted", 1)

    def note_phases(self) -> None:
        """Write the phases into the notes of the runs, where lists read them."""
        phases = {move.run: phase for phase, move in self.state.holders.items()}
        for run_id in {*phases, *self.runs}:
            with suppress(RunNotFoundError):  # Deleted meanwhile.
                notes = self._store.notes(run_id)
                phase, project = phases.get(run_id, ""), notes.project or self.name
                if (notes.phase, notes.project) != (phase, project):
                    self._store.annotate(run_id, phase=phase, project=project)

    def _event(self, kind: str, phase: str, **more: Any) -> ProjectEvent:
        return ProjectEvent.model_validate(
            {
                "kind": kind,
                "project": self.name,
                "phase": phase,
                "time_s": time.time(),
                "user": user_name(),
                "host": socket.gethostname(),
                **more,
            }
        )

    def history(self) -> list[str]:
        """Return a line for each rule, move and action, the newest first."""
        return [_line(event) for event in reversed(self.state.events)]

    def __repr__(self) -> str:
        runs = (f"{phase}: {run or fmt.DASH}" for phase, run in self.phases.items())
        return "\n".join((f"project {self.name}", *runs))


def _require_unchanged(plan: MovePlan, states: Mapping[str, ProjectState]) -> None:
    """Raise RunStateError if somebody has moved a run since the plan was made."""
    state = states.get(plan.project) or ProjectState(plan.project)
    held = None if plan.phase == NONE else state.holders.get(plan.phase)
    now = held.run if held is not None else ""
    if now != plan.replaced or state.phase_of(plan.run) != plan.old_phase:
        raise RunStateError(
            f"Somebody has moved a run of {plan.project} meanwhile: {plan.phase} is"
            f" {now or 'no run'}.",
            remedy="look at it (`llmops project show`) and move the run again",
        )


def _line(event: ProjectEvent) -> str:
    who = f"{day(event.time_s)} {event.user or 'somebody'}@{event.host}"
    if event.kind == "action":
        return f"{who}: {event.text}"
    if event.rule is not None:
        return f"{who}: rule of {event.phase}: {event.rule.text or 'none'}"
    parts = [
        f"{event.run}: {event.old_phase or 'no phase'} -> {event.phase}",
        f"replaces {event.replaced}" if event.replaced else "",
        event.why and f"why: {event.why}",
        event.check and f"check: {event.check}",
        event.forced and f"forced: {event.forced}",
    ]
    return f"{who}: " + "; ".join(part for part in parts if part)


def projects(backend: Backend) -> list[Project]:
    """Return all projects, by name: those with a rule or a move, and those that runs name."""
    names = set(read_projects(backend.store.root))
    for run_id in backend.store.ids():
        with suppress(LLMOpsError):  # Deleted meanwhile.
            names.add(backend.store.notes(run_id).project)
    return [Project(backend, name) for name in sorted(names - {""})]


def project_of(backend: Backend, run_id: str, name: str = "") -> Project:
    """Return the project of that name, by default the run's own. Raises RunStateError."""
    name = name or backend.store.notes(run_id).project
    if not name:
        raise RunStateError(
            f"Run {run_id} is in no project.", remedy="name one: --project NAME, project='NAME'"
        )
    return Project(backend, name)


def set_project(backend: Backend, run_id: str, name: str) -> None:
    """Put a run into a project, or with an empty name into none.

    Raises RunStateError while it has a phase in another one.
    """
    run_id = backend.store.resolve(run_id)
    for state in read_projects(backend.store.root).values():
        phase = state.phase_of(run_id)
        if phase is not None and state.name != name.strip():
            raise RunStateError(
                f"Run {run_id} is {phase} of {state.name}.",
                remedy=f"llmops project move {run_id} --to {NONE}, then put it into another",
            )
    backend.store.annotate(run_id, project=name)
