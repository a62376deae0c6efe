"""What must hold after each round, of the journals and of the homes."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from tests.soak.user import BASE, Expected, User

_TERMINAL = {"SUCCEEDED", "FAILED", "STOPPED"}
_WAIT_S = 120.0


def check_runs(user: User) -> int:
    """Compare all runs with what their scripts wrote; returns the number of journal lines."""
    process = user.start("tests.soak.report", str(_WAIT_S))
    out, err = process.communicate()
    if process.returncode:
        user.broke(f"the runs cannot be read: {err[-800:]}")
        return 0
    told = json.loads(out)
    found = {run["mark"]: run for run in told["runs"]}
    if len(found) < len(told["runs"]):
        user.broke("a run is listed twice")
    user.ids = {mark: run["id"] for mark, run in found.items()}
    for mark, run in user.runs.items():
        _check_presence(user, run, found.get(mark))
    for mark in found.keys() - user.runs.keys():
        user.broke(f"{mark} is listed, and was never submitted")
    for name in set(told["folders"]) - set(user.ids.values()):
        if not name.startswith("."):
            user.broke(f"a folder of no run is left: runs/{name}")
    return sum(run["lines"] for run in found.values())


def _check_presence(user: User, run: Expected, told: dict[str, Any] | None) -> None:
    if told is None:
        if not (run.is_deleted or (run.may_be_missing and not run.reported)):
            user.broke(f"{run.mark} is not listed any more")
    elif run.is_deleted:
        user.broke(f"{run.mark} was deleted and is listed")
    else:
        check_run(user, run, told)


def check_run(user: User, run: Expected, told: dict[str, Any]) -> None:
    about = f"{run.mark} ({told['id']}, {told['state']})"
    if told["state"] not in run.states and not _never_began(run, told):
        wanted = " or ".join(sorted(run.states))
        user.broke(f"{about} should be {wanted}: {told['message'][:300]}")
    lost = [] if run.may_lose_lines else sorted(set(run.reported) - set(told["steps"]))
    if lost:
        user.broke(f"{about} lost steps {lost[:10]} that its script had reported")
    is_whole = told["state"] == "SUCCEEDED" and not run.may_lose_lines
    if is_whole and told["steps"] != list(range(1, run.steps + 1)):
        user.broke(f"{about} has steps {told['steps']}, not 1 to {run.steps}")
    if len(set(told["steps"])) < len(told["steps"]):
        user.broke(f"{about} has steps twice: {told['steps']}")
    if told["gaps"] and not run.may_lose_lines:
        user.broke(f"{about} lacks lines {told['gaps']}")
    if told["doubled"]:
        user.broke(f"{about} has lines twice: {told['doubled'][:10]}")
    if run.checksum and run.checksum != told["checksum"]:
        user.broke(f"{about} had ended, and its record or journal has changed since")
    if told["state"] in _TERMINAL:
        run.checksum = told["checksum"]


def _never_began(run: Expected, told: dict[str, Any]) -> bool:
    """A client killed in the middle of a submit leaves a run that says it was never submitted."""
    return run.may_be_missing and not run.reported and told["state"] == "FAILED"


def check_owners(user: User) -> None:
    """All in a home is its user's, and nothing of the user's is where it was not put."""
    stats = os.lstat(user.home)
    if stats.st_uid != user.uid or stats.st_mode & 0o077:
        user.broke(f"{user.home} is of {stats.st_uid} with mode {stats.st_mode & 0o777:o}")
    for folder, folders, files in os.walk(user.home):
        for name in (*folders, *files):
            _check_owner(user, Path(folder) / name)


def _check_owner(user: User, path: Path) -> None:
    try:
        found = path.lstat().st_uid
    except FileNotFoundError:
        return
    if found != user.uid:
        user.broke(f"{path} belongs to {found}")


def left_in_tmp(user: User) -> list[str]:
    """What the user has in the folders that both share."""
    found = []
    for place in (Path("/tmp"), Path("/dev/shm")):
        for path in place.iterdir():
            if path != BASE and path.lstat().st_uid == user.uid:
                found.append(str(path))
    return sorted(found)
