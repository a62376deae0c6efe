"""What is so of runs, read from files without our own reader, and what must hold of it."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds

TERMINAL = frozenset({"SUCCEEDED", "FAILED", "STOPPED"})

Event = dict[str, Any]


@dataclass(frozen=True)
class RunOnDisk:
    """One run's folder."""

    run_id: str
    attempts: tuple[str, ...]
    """Submission ids."""
    streams: Mapping[str, list[Event]] = field(default_factory=dict)
    """Events of each file, in its order."""
    unreadable: int = 0

    @property
    def events(self) -> list[Event]:
        return [event for events in self.streams.values() for event in events]

    @property
    def kind(self) -> str:
        return self.run_id.split("-")[0]

    @property
    def end(self) -> str | None:
        """The state that the newest attempt ended in; None while it has not ended."""
        last = len(self.attempts)
        ends = [one for one in self.events if one["kind"] == "end" and one["attempt"] >= last]
        return str(max(ends, key=lambda one: float(one["time_s"]))["state"]) if ends else None

    def progress_since(self, time_s: float) -> float:
        """When it made its first step, or had its first rows, after that time; 0 if never."""
        times = [
            float(one["time_s"])
            for one in self.events
            if one["kind"] == "step" or (one["kind"] == "progress" and one["done"])
        ]
        return min((one for one in times if one > time_s), default=0.0)


def read_runs(home: Path) -> dict[str, RunOnDisk]:
    folders = sorted(path for path in (home / "runs").glob("*") if (path / "record.json").exists())
    return {path.name: read_run(path) for path in folders}


def read_run(folder: Path) -> RunOnDisk:
    attempts = []
    if (folder / "attempts.jsonl").exists():
        lines = (folder / "attempts.jsonl").read_text().splitlines()
        attempts = [str(json.loads(line)["submission_id"]) for line in lines]
    streams, unreadable = {}, 0
    for file in sorted((folder / "journal").glob("*.jsonl")):
        streams[file.stem], bad = _events(file.read_bytes())
        unreadable += bad
    return RunOnDisk(folder.name, tuple(attempts), streams, unreadable)


def _events(data: bytes) -> tuple[list[Event], int]:
    """Whole lines as events, and how many are none."""
    found, unreadable = [], 0
    for line in filter(None, data[: data.rfind(b"\n") + 1].split(b"\n")):
        try:
            event = json.loads(line)
            found.append(event | {"seq": int(event["seq"]), "attempt": int(event["attempt"])})
        except (ValueError, KeyError, TypeError):
            unreadable += 1
    return found, unreadable


def journal_faults(run: RunOnDisk, *, every_steps: int, reported: Iterable[int] = ()) -> list[str]:
    """Lines that are lost or doubled, and steps that do not follow each other.

    `reported`: what a training's own code has seen done.
    """
    found = [f"{run.unreadable} lines are no events"] if run.unreadable else []
    for name, events in run.streams.items():
        numbers = Counter(one["seq"] for one in events)
        if twice := sorted(seq for seq, times in numbers.items() if times > 1):
            found.append(f"{name}: lines {twice[:10]} are there more than once")
        if lost := sorted(set(range(1, max(numbers, default=0) + 1)) - numbers.keys()):
            found.append(f"{name}: lines {lost[:10]} are missing")
    found += _step_faults(run, every_steps)
    steps = {one["step"] for one in run.events if one["kind"] == "step"}
    if lost := sorted(set(reported) - steps):
        found.append(f"steps {lost[:10]} were made and are not in the journal")
    return [f"{run.run_id}: {text}" for text in found]


def _step_faults(run: RunOnDisk, every_steps: int) -> list[str]:
    """Each group of workers makes each step once, and goes on from a checkpoint."""
    found: list[str] = []
    saved = last = 0
    streams = {
        name: [one for one in events if one["kind"] in ("step", "checkpoint")]
        for name, events in run.streams.items()
        if "-worker-" in name
    }
    for name in sorted(streams, key=_order):
        steps = [int(one["step"]) for one in streams[name] if one["kind"] == "step"]
        if not steps:
            continue
        if steps != list(range(steps[0], steps[0] + len(steps))):
            found.append(f"{name}: its steps are {steps}")
        before = steps[0] - 1
        # A checkpoint may be whole though its writer was killed before it journalled it.
        if not saved <= before <= last or before % every_steps:
            found.append(
                f"{name}: begins with step {steps[0]}, after a checkpoint of step {saved}"
                f" and the last step {last}"
            )
        last = max(last, steps[-1])
        saves = [int(one["step"]) for one in streams[name] if one["kind"] == "checkpoint"]
        saved = max([saved, *saves])
    return found


def _order(stream: str) -> tuple[int, int]:
    attempt, _, number = stream.split("-")[:3]
    return int(attempt), int(number)


def reported_steps(truth: Path) -> dict[str, set[int]]:
    """Steps that each run's own code has written down, by run."""
    found: dict[str, set[int]] = defaultdict(set)
    if truth.exists():
        text = truth.read_text()
        for line in text[: text.rfind("\n") + 1].splitlines():
            folder, _, step = line.rsplit(" ", 2)
            found[_run_in(folder)].add(int(step))
    return dict(found)


def _run_in(path: str) -> str:
    parts = Path(path).parts
    return parts[parts.index("runs") + 1] if "runs" in parts else path


def row_faults(run: RunOnDisk, *, rows: int, is_echo: bool) -> list[str]:
    """Rows that are lost, doubled or without an answer; `is_echo`: the answer is the text."""
    outputs = [one for one in run.events if one["kind"] == "output"]
    if not outputs:
        return [f"{run.run_id}: it succeeded without an output"]
    folder = Path(outputs[-1]["path"])
    files = sorted(str(path) for path in folder.glob("part-*.parquet"))
    table = ds.dataset(files).to_table().to_pylist() if files else []
    found = []
    ids = Counter(row["id"] for row in table)
    if lost := [f"r{number}" for number in range(rows) if f"r{number}" not in ids]:
        found.append(f"{len(lost)} of {rows} rows are lost: {lost[:5]}")
    if twice := [one for one, times in ids.items() if times > 1]:
        found.append(f"{len(twice)} rows are there twice: {twice[:5]}")
    if len(ids) > rows:
        found.append(f"{len(ids)} rows, not {rows}")
    if errors := [row["error"] for row in table if row["error"]]:
        found.append(f"{len(errors)} rows have an error: {errors[0]}")
    if is_echo and any(row["output"] != row["text"] for row in table):
        found.append("an answer is of another row")
    if not (folder / "_SUCCESS").exists() or list(folder.glob(".*")):
        found.append(f"{folder} is not finished: {sorted(path.name for path in folder.iterdir())}")
    return [f"{run.run_id}: {text}" for text in found]


def state_faults(
    run: RunOnDisk, shown: Mapping[str, str], *, has_driver: bool, who: str
) -> list[str]:
    """Compare with the state that is shown; a run whose end is not written yet must have one."""
    state = shown.get(run.run_id)
    if state is None:
        return [f"{who}: {run.run_id} is not listed"]
    if run.end is not None and state != run.end:
        return [f"{who}: {run.run_id} has ended as {run.end} and is shown as {state}"]
    if run.end is None and has_driver and state in TERMINAL:
        return [f"{who}: {run.run_id} has a driver and is shown as {state}"]
    if run.end is None and not has_driver and state not in TERMINAL:
        return [f"{who}: {run.run_id} has no driver and is shown as {state}"]
    return []
