"""Schedules: what is run when and at which revision, and what each firing came to.

All of a schedule stands in one file of the home folder, `schedules/NAME.json`, its firings too. So
any process can fire it, and whoever takes a firing writes that down before anything runs.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from itertools import islice, takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self
from zoneinfo import ZoneInfo

from pydantic import BaseModel, ConfigDict, StringConstraints, ValidationError

from llmops_kernel.config.problems import did_you_mean
from llmops_kernel.errors import ConfigError, MissingDependencyError, ScheduleError
from llmops_kernel.store.files import (
    file_lock,
    private_folder,
    store_errors,
    write_new,
    write_whole,
)
from llmops_kernel.store.store import RunStore

if TYPE_CHECKING:
    from cronsim import CronSim

FiringState = Literal["RUNNING", "SUBMITTED", "SUCCEEDED", "FAILED", "STOPPED"]
ENDED = frozenset({"SUCCEEDED", "FAILED", "STOPPED"})
NAME = r"^[a-z0-9]+(-[a-z0-9]+)*$"
MAX_NAME = 52
"""Kubernetes' limit for the name of a CronJob, which appends a time to it."""
KEPT_FIRINGS = 200
NOTEBOOK = ".ipynb"
_COUNTED = 10_000
_FIELDS = "minute hour day month weekday, such as `0 2 * * 1-5`: at 2:00 from Monday to Friday"


class Firing(BaseModel):
    """One time that a schedule fired."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    id: str
    due_s: float | None = None
    """When it was due; None: it was asked for by hand."""
    missed: int | None = 0
    """Earlier due times that it stands for, as no scheduler ran then; None: too many to count."""
    started_s: float
    branch: str | None = None
    """Branch that was followed; None for a pinned revision."""
    revision: str | None = None
    """The commit that ran; None until it is known."""
    state: FiringState = "RUNNING"
    """SUBMITTED: its run has been accepted and has not ended yet, as far as is known."""
    runs: tuple[str, ...] = ()
    """Ids of the run that it submitted, or of those that its notebook did."""
    output: str | None = None
    """The executed notebook."""
    ended_s: float | None = None
    message: str = ""
    remedy: str = ""


class Schedule(BaseModel):
    """A notebook or a config of a git repository, and when it is run."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    name: Annotated[str, StringConstraints(pattern=NAME, max_length=MAX_NAME)]
    repository: str
    path: str
    """The notebook or config, from the repository's root."""
    workspace: str | None = None
    """Folder to upload with a run, from the repository's root; None: that of the config."""
    cluster: str = "local"
    template: str | None = None
    """File of the cluster's template; None for one that is found by name."""
    cron: str = ""
    """Five fields; empty: it is only run by hand."""
    timezone: str = "UTC"
    changes: tuple[str, ...] = ()
    """`SECTION.FIELD=VALUE` of a config, `NAME=VALUE` of a notebook's parameters."""
    branch: str | None = None
    """Branch that it follows, such as `main`, or `origin/main`, which is fetched first."""
    revision: str | None = None
    """Commit that it stays at, where it follows no branch."""
    paused: bool = False
    created_s: float
    seen_s: float
    """Due times up to this moment have been handled."""
    firings: tuple[Firing, ...] = ()
    """The newest last."""

    @property
    def is_notebook(self) -> bool:
        return self.path.endswith(NOTEBOOK)

    @property
    def source(self) -> str:
        """Return what it runs, in words: `branch main`, or `revision 1a2b3c4`."""
        return f"branch {self.branch}" if self.branch else f"revision {short(self.revision)}"

    def next_s(self) -> float | None:
        """Return when it is due next; None while it is paused, and without times."""
        if self.paused or not self.cron:
            return None
        return next(times_after(self.cron, self.timezone, after_s=self.seen_s), None)

    def due(self, now_s: float) -> tuple[float, int | None] | None:
        """Return the newest due time that was not handled, and how many earlier ones it covers."""
        if self.paused or not self.cron:
            return None
        return newest_due(self.cron, self.timezone, after_s=self.seen_s, now_s=now_s)

    def with_firing(self, id: str, **changes: Any) -> Self:
        """Return the schedule with changes to one of its firings."""
        firings = [
            each.model_copy(update=changes) if each.id == id else each for each in self.firings
        ]
        return self.model_copy(update={"firings": tuple(firings)})

    def without_firing(self, id: str) -> Self:
        """Return the schedule without one of its firings."""
        kept = tuple(each for each in self.firings if each.id != id)
        return self.model_copy(update={"firings": kept})


def short(revision: str | None) -> str:
    return revision[:7] if revision else "–"


def local_time(time_s: float | None, timezone: str) -> str:
    """Return a time in the schedule's own zone, to the minute; a dash for an unknown one."""
    if time_s is None:
        return "–"
    return datetime.fromtimestamp(time_s, ZoneInfo(timezone)).strftime("%Y-%m-%d %H:%M %Z")


# --- Due times ---


def check_times(cron: str, timezone: str) -> None:
    """Raise ConfigError unless the expression has five fields with a time, and the zone exists."""
    try:
        zone = ZoneInfo(timezone)
    except (KeyError, OSError, ValueError):  # Not found, or a path instead of a name.
        raise ConfigError(
            f"There is no time zone {timezone!r}", remedy="use a name such as Europe/Berlin or UTC"
        ) from None
    if len(cron.split()) != 5:
        raise ConfigError(f"{cron!r} is no cron expression of five fields", remedy=_FIELDS)
    if next(_cron(cron, datetime.now(zone)), None) is None:
        raise ConfigError(f"Cron expression {cron!r} names no date that exists", remedy=_FIELDS)


def times_after(cron: str, timezone: str, *, after_s: float) -> Iterator[float]:
    """Yield the due times after a moment, as Debian's cron has them around clock changes.

    A fixed time that the clock skips is due right after the skip, one that it shows twice the
    first time; expressions with `*` as minute or hour follow real time.
    """
    for moment in _cron(cron, datetime.fromtimestamp(after_s, ZoneInfo(timezone))):
        # Within the hour that comes twice, the first one of a fixed time may be over already.
        if (time_s := moment.timestamp()) > after_s:
            yield time_s


def newest_due(
    cron: str, timezone: str, *, after_s: float, now_s: float
) -> tuple[float, int | None] | None:
    """Return the last due time in `after_s < t <= now_s`, and how many were before it there."""
    times = times_after(cron, timezone, after_s=after_s)
    due = list(islice(takewhile(lambda time_s: time_s <= now_s, times), _COUNTED))
    if len(due) < _COUNTED:
        return (due[-1], len(due) - 1) if due else None
    # Years of minutes: the newest is looked up from the other end, and nobody counts the others.
    # From the next minute on, as its first time back may be this one.
    moment = datetime.fromtimestamp(now_s + 60, ZoneInfo(timezone))
    back = (each.timestamp() for each in _cron(cron, moment, reverse=True))
    return next(time_s for time_s in back if time_s <= now_s), None


def _cron(cron: str, moment: datetime, *, reverse: bool = False) -> CronSim:
    try:
        from cronsim import CronSim, CronSimError
    except ImportError:
        raise MissingDependencyError(
            "Schedules need the package cronsim, which is not installed",
            remedy="pip install --upgrade llmops-kernel",
        ) from None
    try:
        return CronSim(cron, moment, reverse)
    except CronSimError as error:
        raise ConfigError(f"Cron expression {cron!r}: {error}", remedy=_FIELDS) from None


# --- The files of the schedules ---


class ScheduleStore:
    """The schedules of a home folder."""

    def __init__(self, store: RunStore) -> None:
        self.root = store.root / "schedules"

    def names(self) -> list[str]:
        return sorted(path.stem for path in self.root.glob("*.json"))

    def all(self) -> list[Schedule]:
        return [self.load(name) for name in self.names()]

    def folder(self, name: str) -> Path:
        """Return the folder of a schedule's checkouts and executed notebooks."""
        return self.root / name

    def load(self, name: str) -> Schedule:
        """Raise ScheduleError for an unknown name, and for a file that cannot be read."""
        path = self.root / f"{name}.json"
        if name not in (names := self.names()):
            hint = did_you_mean(name, names) or (f"one of: {', '.join(names)}" if names else "")
            raise ScheduleError(
                f"Schedule {name!r} not found",
                remedy=hint or "llmops schedule add NAME FILE --cron '0 2 * * *'",
            )
        try:
            with store_errors("read", path):
                return Schedule.model_validate_json(path.read_bytes())
        except ValidationError as error:
            raise ScheduleError(
                f"Schedule {path} cannot be read: {error.errors()[0]['msg']}",
                remedy=f"it is broken or of another version: remove {path} and add it again",
            ) from None

    def add(self, schedule: Schedule) -> None:
        """Write a new schedule. Raises ScheduleError where one has its name."""
        path = self.root / f"{schedule.name}.json"
        with store_errors("write", path):
            private_folder(self.root)
            try:
                write_new(path, schedule.model_dump_json(indent=2).encode())
            except FileExistsError:
                raise ScheduleError(
                    f"There is a schedule {schedule.name!r} already",
                    remedy=f"choose another name, or `llmops schedule rm {schedule.name}`",
                ) from None

    def change(self, name: str, changed: Callable[[Schedule], Schedule]) -> Schedule:
        """Rewrite a schedule as `changed` says; changes of other processes stay."""
        self.load(name)  # Makes no folder for an unknown one.
        path = self.root / f"{name}.json"
        with file_lock(self.root / ".lock", mode=0o600):
            schedule = changed(self.load(name))
            kept = schedule.model_copy(update={"firings": schedule.firings[-KEPT_FIRINGS:]})
            with store_errors("write", path):
                write_whole(path, kept.model_dump_json(indent=2).encode())
        return kept

    def update(self, name: str, **changes: Any) -> Schedule:
        return self.change(name, lambda schedule: schedule.model_copy(update=changes))

    def remove(self, name: str) -> Schedule:
        """Remove a schedule; what it has run stays. Raises ScheduleError."""
        schedule = self.load(name)
        with file_lock(self.root / ".lock", mode=0o600):
            (self.root / f"{name}.json").unlink(missing_ok=True)
        return schedule

    def claim(self, name: str, *, now_s: float, by_hand: bool = False) -> Firing | None:
        """Take the next firing and write it down; None where nothing is due.

        Only for the holder of the schedule's `hold`. Firings that still run are then left by a
        process that is gone.
        """
        claimed: list[Firing] = []

        def take(schedule: Schedule) -> Schedule:
            for each in schedule.firings:
                if each.state == "RUNNING":
                    schedule = schedule.with_firing(
                        each.id,
                        state="STOPPED",
                        ended_s=now_s,
                        message="the scheduler ended before this had",
                    )
            due = None if by_hand else schedule.due(now_s)
            if due is None and not by_hand:
                return schedule
            due_s, missed = due or (None, 0)
            stamp = time.strftime("%y%m%d-%H%M%S", time.gmtime(now_s))
            firing = Firing(
                id=f"{name}-{stamp}-{secrets.token_hex(2)}",
                due_s=due_s,
                missed=missed,
                started_s=now_s,
                branch=schedule.branch,
            )
            claimed.append(firing)
            return schedule.model_copy(
                update={
                    "seen_s": due_s or schedule.seen_s,
                    "firings": (*schedule.firings, firing),
                }
            )

        self.change(name, take)
        return claimed[0] if claimed else None

    def hold(self, name: str) -> int | None:
        """Return a file descriptor that holds a schedule until it is closed; None: another has it.

        The kernel closes it for a process that dies.
        """
        path = self.folder(name) / ".lock"
        with store_errors("lock", path):
            private_folder(path.parent)
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            return None
        return fd
