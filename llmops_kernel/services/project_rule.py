"""What a phase asks of a run, its scores and the other run's, and checkpoints that may go."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from llmops_kernel.config.counted import counted
from llmops_kernel.errors import LLMOpsError, RunNotFoundError, StoreError
from llmops_kernel.kinds.kind import load_attribute
from llmops_kernel.kinds.registry import kind_named, view_of
from llmops_kernel.store.garbage import folder_size
from llmops_kernel.store.outputs import PROFILE
from llmops_kernel.store.projects import PhaseRule
from llmops_kernel.store.store import RunStore
from llmops_kernel.views import format as fmt
from llmops_kernel.views.score_comparison import MetricChange, signed

# --- The rule of a phase: scores are not worse than those of the run that has it ---


@dataclass(frozen=True, kw_only=True)
class Check:
    """Result of a rule for one run."""

    passed: bool
    text: str
    remedy: str = ""
    """What to do if it has not passed."""


def check_rule(store: RunStore, rule: PhaseRule, run_id: str, *, holder: str) -> Check:
    """Compare the newest scoring of a run with that of the run that has the phase.

    What is not known has not passed. `holder` is empty where no run has the phase: the run must
    have the scores all the same, which the next one is compared with.
    """
    if not rule.scoring:
        return Check(passed=True, text="no rule")
    scorings = {}
    for of_run in filter(None, (run_id, holder)):
        newest, command = _scoring(store, rule.scoring, of_run)
        if newest is None and of_run not in store.ids():
            return Check(
                passed=False,
                text=f"run {of_run}, which has the phase, is deleted and has no scoring",
                remedy="move the run with --force and a reason",
            )
        if newest is None:
            return Check(
                passed=False,
                text=f"run {of_run} has no finished scoring by {rule.scoring}",
                remedy=command,
            )
        scorings[of_run] = newest
    after = scorings[run_id]
    before = scorings.get(holder, after)
    try:
        function = load_attribute(kind_named(store.record(after).kind).output_comparison)
        changes = {change.name: change for change in function(store, before, after).metrics}
    except LLMOpsError as error:
        return Check(passed=False, text=error.message, remedy=error.remedy)
    change = changes.get(rule.figure)
    if change is None:
        names = ", ".join(changes) or "they have no metric in common"
        where = " and ".join(dict.fromkeys((before, after)))
        text = f"{rule.figure} is not a metric of {where}"
        return Check(passed=False, text=text, remedy=f"use one of: {names}")
    if not holder and change.after is not None:
        value = fmt.number(change.after)
        return Check(passed=True, text=f"{rule.figure} {value}; no run has the phase yet")
    return verdict_of(rule, change)


def verdict_of(rule: PhaseRule, change: MetricChange) -> Check:
    """Return whether a change is allowed, from the run that has the phase to the one that moves."""
    delta, better = change.delta, change.better
    if delta is None or better is None:
        known = "is neither better nor worse" if better is None else "is unknown in one scoring"
        return Check(passed=False, text=f"{rule.figure} {known}", remedy="name another figure")
    low = delta if change.low is None else change.low
    high = delta if change.high is None else change.high
    gain_low, gain_high = (low, high) if better == "higher" else (-high, -low)
    if rule.margin is None:
        passed, limit = gain_high >= 0, ""
    else:
        passed, limit = gain_low >= -rule.margin, f" by more than {fmt.number(rule.margin)}"
    words = f"{'not' if passed else 'clearly' if rule.margin is None else 'perhaps'} worse{limit}"
    interval = f"95 % interval {signed(low)} .. {signed(high)}, {counted(change.rows, 'row')}"
    if change.low is None:
        words = words.replace("clearly ", "")
        interval = "without an interval"
    values = f"{fmt.number(change.before)} -> {fmt.number(change.after)}"
    return Check(
        passed=passed,
        text=f"{rule.figure} is {words}: {values} ({signed(delta)}, {interval})",
        remedy="" if passed else "improve the run, or move it with --force and a reason",
    )


def _scoring(store: RunStore, name: str, of_run: str) -> tuple[str | None, str]:
    """Return the newest finished scoring of a run by a config, and the command that makes one."""
    path = ""
    for row in store.listed():
        if row.name != name:
            continue
        with suppress(StoreError, RunNotFoundError):  # Broken or deleted meanwhile.
            record = store.record(row.run_id)
            if not kind_named(record.kind).output_comparison:
                continue
            path = path or record.config_path or ""
            model = record.config.get("model")
            is_of_run = isinstance(model, Mapping) and model.get("run") == of_run
            if is_of_run and view_of(store, row.run_id).state == "SUCCEEDED":
                return row.run_id, ""
    return None, f"llmops score {path or f'{name}.score.yaml'} model.run={of_run}"


# --- Checkpoints that may go: the result is whole elsewhere, and nothing begins with them ---


@dataclass(frozen=True, kw_only=True)
class OldCheckpoints:
    """The checkpoints of a run that would be deleted, or why they stay."""

    run: str
    folders: tuple[Path, ...] = ()
    size_bytes: int = 0
    kept: tuple[str, ...] = ()
    """What stays, each with the reason."""

    @property
    def text(self) -> str:
        size = fmt.byte_size(self.size_bytes)
        count = counted(len(self.folders), "checkpoint")
        parts = [f"delete {count} of {self.run} ({size})"] if self.folders else []
        parts += [f"keep {each}" for each in self.kept]
        return "; ".join(parts) or f"{self.run} has no checkpoints here"


def old_checkpoints(store: RunStore, run_id: str, *, used: Mapping[str, str]) -> OldCheckpoints:
    """Return which checkpoints of a run can be deleted.

    `used`: runs that must keep theirs -> the reason. Those outside of the run's folder stay.
    """
    root = store.folder(run_id).checkpoints
    folders = sorted(path for path in root.glob("*") if path.is_dir())
    if not folders:
        return OldCheckpoints(run=run_id)
    reason = used.get(run_id) or _why_needed(store, run_id)
    if reason:
        return OldCheckpoints(run=run_id, kept=(f"the checkpoints of {run_id}: {reason}",))
    users = _users(store, run_id, [str(path) for path in folders])
    old = tuple(path for path in folders if str(path) not in users)
    return OldCheckpoints(
        run=run_id,
        folders=old,
        size_bytes=sum(folder_size(path) or 0 for path in old),
        kept=tuple(f"{Path(path).name}: {user} begins with it" for path, user in users.items()),
    )


def _why_needed(store: RunStore, run_id: str) -> str:
    """Return why all checkpoints of a run are needed; empty where its result is whole here."""
    view, folder = view_of(store, run_id), store.folder(run_id)
    if view.state not in ("SUCCEEDED", "STOPPED"):
        return f"it is {view.state}"
    if store.notes(run_id).starred:
        return "it has a star"
    paths = [event.path for event in view.outputs if event.what != PROFILE]
    here = [Path(path) for path in paths if "://" not in path]
    whole = [
        path
        for path in (*here, folder.output)
        if not path.is_relative_to(folder.checkpoints)
        and any(path.glob("*.safetensors"))
        and any(path.glob("*config.json"))
    ]
    return "" if whole else "its result is not on this machine"


def _users(store: RunStore, run_id: str, folders: list[str]) -> dict[str, str]:
    """Return the checkpoints that other runs begin with -> one of these runs."""
    steps = {Path(event.path).name: event.step for event in view_of(store, run_id).checkpoints}
    users: dict[str, str] = {}
    for other in store.ids():
        if other == run_id:
            continue
        try:
            config = store.record(other).config
        except RunNotFoundError:
            continue  # Deleted meanwhile.
        text, model = json.dumps(config), config.get("model")
        begun = model if isinstance(model, Mapping) and model.get("run") == run_id else {}
        for folder in folders:
            is_named = json.dumps(folder)[:-1] + '"' in text
            if is_named or (begun.get("step") or -1) == steps.get(Path(folder).name):
                users.setdefault(folder, other)
    return users
