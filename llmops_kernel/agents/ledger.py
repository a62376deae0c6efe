"""What agents have used of their budget: `agents-ledger.json` of the home folder.

An amount is reserved before a submission, under a lock that processes and threads share; given
back when the submission fails; and replaced by what was used when the run has ended. What cannot
be measured counts as reserved, never as nothing.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
from pydantic import BaseModel, ConfigDict, ValidationError

from llmops_kernel.agents.rules import Budget
from llmops_kernel.config.counted import counted
from llmops_kernel.errors import AgentError, LLMOpsError, RunNotFoundError, StoreError
from llmops_kernel.kinds.reading import file_kind
from llmops_kernel.kinds.registry import kind_named, view_of
from llmops_kernel.metrics.cost import cost_so_far
from llmops_kernel.metrics.events import EndEvent, HoldEvent
from llmops_kernel.store.files import private_home, store_errors, write_whole
from llmops_kernel.store.record import RunRecord
from llmops_kernel.store.store import RunStore

FILE, LOCK = "agents-ledger.json", "agents-ledger.lock"
_HOUR_S = 3600.0
_CLOCK_S = 60.0
"""By so much a record may be older than the reservation it was made with."""


class Entry(BaseModel):
    """An attempt of a run, or a reservation for one."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    ticket: str
    agent: str
    reserved_s: float
    """Unix time."""
    gpu_hours: float
    money: float
    """Reserved."""
    stop_gpu_hours: float | None = None
    """Beyond it the run is stopped; None: there is no limit."""
    stop_money: float | None = None
    holder: str
    """Process that submits: `host:pid:start`."""
    run: str = ""
    """Empty until it is submitted."""
    attempt: int = 1
    has_ended: bool = False
    used_gpu_hours: float | None = None
    """None: not known, so what is reserved counts."""
    used_money: float | None = None

    @property
    def counted(self) -> tuple[float, float]:
        """Return GPU-hours and money that count: of a live run the reservation at least."""
        pairs = ((self.gpu_hours, self.used_gpu_hours), (self.money, self.used_money))
        gpu_hours, money = (
            held if used is None else used if self.has_ended else max(held, used)
            for held, used in pairs
        )
        return gpu_hours, money


class _Book(BaseModel):
    model_config = ConfigDict(extra="ignore")

    since_s: float = 0.0
    """Unix time at which this budget began."""
    entries: list[Entry] = []


@dataclass(frozen=True, kw_only=True)
class Use:
    """Sums over the entries of a budget: what ended runs have used and live ones hold."""

    runs: int = 0
    live: int = 0
    gpu_hours: float = 0.0
    money: float = 0.0
    since_s: float = 0.0


class Ledger:
    """The ledger of a home; keeps nothing in memory. Raises StoreError for a broken file."""

    def __init__(self, store: RunStore) -> None:
        self._store = store
        self._path = store.root / FILE

    def reserve(
        self,
        budget: Budget,
        *,
        agent: str,
        gpu_hours: float | None = None,
        money: float | None = None,
        run: str = "",
    ) -> Entry:
        """Reserve a run with so many GPU-hours and so much money.

        By default an equal share of the budget for each of its runs. `run` is the one that is
        retried. Raises AgentError where that is more than what is left.
        """
        share = max(1, budget.runs)
        is_limited = budget.gpu_hours is not None or gpu_hours is not None
        is_priced = budget.money is not None or money is not None
        gpu_hours = (budget.gpu_hours or 0.0) / share if gpu_hours is None else gpu_hours
        money = (budget.money or 0.0) / share if money is None else money
        with self._open() as book:
            use = _use(book)
            if use.runs >= budget.runs:
                left = f"{counted(use.runs, 'run')} of {budget.runs}"
                raise AgentError(f"The budget of agents is used up: {left}", remedy=_MORE)
            limits = (
                ("GPU-hours", use.gpu_hours, gpu_hours, budget.gpu_hours),
                ("money", use.money, money, budget.money),
            )
            for what, used, more, most in limits:
                if most is not None and used + more > most + 1e-9:
                    raise AgentError(
                        f"The budget of agents has {max(0.0, most - used):.4g} of {most:.4g}"
                        f" {what} left, and this run would reserve {more:.4g}",
                        remedy=f"reserve less, or wait until other runs have ended; {_MORE}",
                    )
            entry = Entry(
                ticket=secrets.token_hex(8),
                agent=agent,
                reserved_s=time.time(),
                gpu_hours=gpu_hours,
                money=money,
                stop_gpu_hours=gpu_hours if is_limited else None,
                stop_money=money if is_priced else None,
                holder=_this_process(),
                run=run,
            )
            # Of a retry the number of the attempt is not known yet: it is 0 until `attach`.
            book.entries.append(entry.model_copy(update={"attempt": 0 if run else 1}))
        return entry

    def attach(self, ticket: str, run: str, attempt: int = 1) -> None:
        """Note the run that was submitted with a reservation."""
        with self._open() as book:
            _replace(book, ticket, run=run, attempt=attempt)

    def give_back(self, ticket: str) -> None:
        """Give back the reservation of a submission that has failed.

        Where Ray has the run all the same, it stays.
        """
        with self._open() as book:
            self._resolve(book, ticket)

    def use(self) -> Use:
        """Return what is used and reserved."""
        with self._open() as book:
            return _use(book)

    def over(self) -> list[Entry]:
        """Return live runs that have used more than was reserved for them."""
        with self._open() as book:
            return [
                entry
                for entry in book.entries
                if entry.run
                and not entry.has_ended
                and (
                    _exceeds(entry.used_gpu_hours, entry.stop_gpu_hours)
                    or _exceeds(entry.used_money, entry.stop_money)
                )
            ]

    def begin_anew(self) -> None:
        """Begin a new budget; runs that have not ended go on counting."""
        with self._open() as book:
            book.entries = [entry for entry in book.entries if not entry.has_ended]
            book.since_s = time.time()

    @contextmanager
    def _open(self) -> Iterator[_Book]:
        """Lock, read, bring up to date, and write what the caller has changed."""
        private_home(self._store.root)
        with store_errors("write", self._path):
            fd = os.open(self._store.root / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            book = _read(self._path)
            before = book.model_dump_json(indent=2)
            self._settle(book)
            try:
                yield book
            finally:
                after = book.model_dump_json(indent=2)
                if after != before:
                    with store_errors("write", self._path):
                        write_whole(self._path, after.encode())
        finally:
            os.close(fd)

    def _settle(self, book: _Book) -> None:
        """Take over what runs have used, and what killed processes left."""
        for entry in list(book.entries):
            if entry.has_ended:
                continue
            if entry.run and entry.attempt:
                used = used_by(self._store, entry.run, entry.attempt)
                _replace(
                    book,
                    entry.ticket,
                    has_ended=used.has_ended,
                    used_gpu_hours=used.gpu_hours,
                    used_money=used.money,
                )
            elif not _is_alive(entry.holder):
                self._resolve(book, entry.ticket)

    def _resolve(self, book: _Book, ticket: str) -> None:
        """Attach a reservation to the run that was made with it, or remove it without one."""
        entry = next((each for each in book.entries if each.ticket == ticket), None)
        if entry is None or (entry.run and entry.attempt):
            return
        run, attempt = entry.run, 1
        with suppress(LLMOpsError):
            if run:
                later = [a for a in self._store.attempts(run) if a.submitted_s >= entry.reserved_s]
                attempt = later[0].number if later else 0
            else:
                run = self._run_of(entry)
        if run and attempt and not _never_began(self._store, run):
            _replace(book, ticket, run=run, attempt=attempt)
        else:
            book.entries = [each for each in book.entries if each.ticket != ticket]

    def _run_of(self, entry: Entry) -> str:
        for row in self._store.listed():
            if row.created_s < entry.reserved_s - _CLOCK_S:
                break
            with suppress(LLMOpsError):
                mark = self._store.record(row.run_id).agent
                if mark is not None and mark.ticket == entry.ticket:
                    return row.run_id
        return ""


_MORE = "a person can allow more in agents.yaml, or begin a new budget: llmops mcp --new-budget"


def _read(path: Path) -> _Book:
    """Return the book; a broken one is not taken for an empty one, which would allow all again."""
    try:
        return _Book.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return _Book(since_s=time.time())
    except (OSError, ValidationError) as error:
        raise StoreError(
            f"The budget of agents cannot be read from {path}: {str(error).splitlines()[0]}",
            remedy="a person can look at the file and remove it; agents submit nothing until then",
        ) from None


def _replace(book: _Book, ticket: str, **changes: object) -> None:
    book.entries = [
        entry.model_copy(update=changes) if entry.ticket == ticket else entry
        for entry in book.entries
    ]


def _use(book: _Book) -> Use:
    amounts = [entry.counted for entry in book.entries]
    return Use(
        runs=len(book.entries),
        live=sum(not entry.has_ended for entry in book.entries),
        gpu_hours=sum(gpu_hours for gpu_hours, _ in amounts),
        money=sum(money for _, money in amounts),
        since_s=book.since_s,
    )


def _exceeds(used: float | None, most: float | None) -> bool:
    return used is not None and most is not None and used > most + 1e-9


def _never_began(store: RunStore, run: str) -> bool:
    """Return whether Ray has refused the run, which its submission then reported."""
    try:
        view = view_of(store, run)
    except LLMOpsError:
        return True
    return view.is_terminal and not view.has_begun


def _this_process() -> str:
    pid = os.getpid()
    return f"{socket.gethostname()}:{pid}:{psutil.Process(pid).create_time():.0f}"


def _is_alive(holder: str) -> bool:
    """Return whether the process may still submit: one of another host cannot be asked."""
    host, pid, began = holder.rsplit(":", 2)
    if host != socket.gethostname():
        return True
    try:
        return f"{psutil.Process(int(pid)).create_time():.0f}" == began
    except (psutil.Error, ValueError):
        return False


# --- What an attempt has used ---


@dataclass(frozen=True, kw_only=True)
class Used:
    """Of an attempt, up to now; None: not known."""

    has_ended: bool
    gpu_hours: float | None = None
    money: float | None = None


def used_by(store: RunStore, run: str, attempt: int) -> Used:
    """Return what an attempt has held. One that never had a node has used nothing.

    GPUs count from the first process of the attempt on the cluster to its end, or to what it wrote
    last, whether they were busy or not.
    """
    try:
        record, attempts = store.record(run), store.attempts(run)
        events = [event for event in store.events(run) if event.attempt == attempt]
    except RunNotFoundError:
        return Used(has_ended=True)  # A person deleted it.
    view = view_of(store, run)
    is_newest = not attempts or attempts[-1].number <= attempt
    has_ended = not is_newest or view.is_terminal
    holds = [event for event in events if isinstance(event, HoldEvent)]
    if not holds:
        used = 0.0 if has_ended and not view.has_begun else None
        return Used(has_ended=has_ended, gpu_hours=used, money=used)
    ends = [event.time_s for event in events if isinstance(event, EndEvent)]
    last_s = max(event.time_s for event in events)
    until_s = max(ends) if ends else last_s
    hours = max(0.0, until_s - min(hold.time_s for hold in holds)) / _HOUR_S
    gpus = _gpus(record)
    return Used(
        has_ended=has_ended,
        gpu_hours=None if gpus is None else gpus * hours,
        money=cost_so_far(holds, until_s={attempt: until_s}).money,
    )


def _gpus(record: RunRecord) -> float | None:
    """Return the GPUs of a run at most; None where that is not known."""
    of_cluster = record.hardware.get("num_gpus")
    if of_cluster == 0 and record.provider == "local":
        return 0.0
    try:
        config = file_kind(kind_named(record.kind)).model.model_validate(record.config)
    except (LLMOpsError, ValidationError):
        return None if of_cluster is None else float(of_cluster)
    known = getattr(config, "worker_processes", 0) or of_cluster
    return None if known is None else float(known)
