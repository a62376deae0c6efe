"""Schedules fire once, at the revision that they name, whatever happens around them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from llmops_kernel.errors import ConfigError, ScheduleError
from llmops_kernel.services.backend import Backend
from llmops_kernel.services.schedule_source import (
    check_out,
    check_source,
    follow,
    new_schedule,
    pin,
    set_paused,
)
from llmops_kernel.services.scheduler import Scheduler
from llmops_kernel.services.schedules import Schedule, ScheduleStore
from tests.services.schedules.repository import commit, git, init, printed, write_notebook
from tests.waiting import until

DAY_S = 86400.0
MADE_S = 20 * 365 * DAY_S  # Midnight, UTC.
DAILY = "0 2 * * *"


@dataclass
class Clock:
    now_s: float = MADE_S

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def backend(home: Path) -> Backend:
    return Backend()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = init(tmp_path / "user")
    write_notebook(folder / "reports" / "daily.ipynb", "word = 'none'", "print('first', word)")
    commit(folder)
    return folder


@pytest.fixture
def add(backend: Backend, repository: Path) -> Callable[..., Schedule]:
    def add(name: str = "daily", **options: object) -> Schedule:
        options = {"cron": DAILY, "now_s": MADE_S, **options}
        file = repository / "reports" / "daily.ipynb"
        return new_schedule(backend, name, file, **options)[0]  # type: ignore[arg-type]

    return add


# --- When ---


@pytest.mark.parametrize(
    ("days", "expected"),
    [
        ([0.05], [None]),
        ([0.1], [0]),
        ([0.1, 0.2, 1.1], [0, None, 0]),
        ([5.1, 5.2], [5, None]),  # The machine was off: once, for six due times.
        ([1.1, 0.5, 2.1], [1, None, 0]),  # The clock was set back.
    ],
)
def test_each_due_time_is_claimed_once(
    days: list[float], expected: list[int | None], add: Callable[..., Schedule], backend: Backend
) -> None:
    add()
    store = ScheduleStore(backend.store)
    claims = [store.claim("daily", now_s=MADE_S + day * DAY_S) for day in days]
    assert [claim and claim.missed for claim in claims] == expected


def test_of_schedulers_at_once_one_fires(add: Callable[..., Schedule], backend: Backend) -> None:
    add()
    store, claimed, start = ScheduleStore(backend.store), [], threading.Barrier(8)

    def claim() -> None:
        start.wait()
        if store.hold("daily") is not None:  # Held until the end of the test's process.
            claimed.append(store.claim("daily", now_s=MADE_S + DAY_S))

    threads = [threading.Thread(target=claim) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(claimed) == 1
    assert len(store.load("daily").firings) == 1


def test_a_paused_schedule_does_not_fire_and_makes_up_for_nothing(
    add: Callable[..., Schedule], backend: Backend
) -> None:
    add()
    store = ScheduleStore(backend.store)
    assert set_paused(backend, "daily", True, now_s=MADE_S).next_s() is None
    assert store.claim("daily", now_s=MADE_S + 3 * DAY_S) is None
    resumed = set_paused(backend, "daily", False, now_s=MADE_S + 3 * DAY_S)
    assert store.claim("daily", now_s=MADE_S + 3 * DAY_S) is None
    assert resumed.next_s() == MADE_S + 3 * DAY_S + 2 * 3600


def test_a_firing_whose_scheduler_was_killed_is_stopped_by_the_next(
    add: Callable[..., Schedule], backend: Backend
) -> None:
    add()
    store = ScheduleStore(backend.store)
    store.claim("daily", now_s=MADE_S + DAY_S)
    store.claim("daily", now_s=MADE_S + 2 * DAY_S)
    assert [each.state for each in store.load("daily").firings] == ["STOPPED", "RUNNING"]


def test_a_broken_file_is_reported_once_and_the_others_fire(
    add: Callable[..., Schedule], backend: Backend
) -> None:
    add(), add("broken")
    (ScheduleStore(backend.store).root / "broken.json").write_text("{")
    hold, lines = ScheduleStore(backend.store).hold("daily"), list[str]()
    worker = Scheduler(backend, clock=Clock(MADE_S + DAY_S), report=lines.append)
    assert hold is not None  # So that nothing runs here.
    assert [*worker.tick(), *worker.tick()] == []
    assert len(lines) == 1
    assert "broken.json" in lines[0]


# --- Which revision ---


def test_it_follows_a_branch_until_it_is_pinned(
    add: Callable[..., Schedule], backend: Backend, repository: Path, tmp_path: Path
) -> None:
    schedule = add()
    first, notebook = git(repository, "rev-parse", "HEAD"), repository / "reports" / "daily.ipynb"
    assert (schedule.branch, check_source(schedule)) == ("main", first)
    write_notebook(notebook, "word = 1", "print('second')")
    second = commit(repository)
    assert check_source(schedule) == second
    pinned = pin(backend, "daily", revision="HEAD~1")
    assert (pinned.branch, pinned.revision, check_source(pinned)) == (None, first, first)
    git(repository, "switch", "--quiet", "--create", "trial")
    notebook.write_text("changed and not committed")
    followed = follow(backend, "daily", branch="main")
    check_out(followed, check_source(followed), tmp_path / "out")
    assert git(tmp_path / "out", "rev-parse", "HEAD") == second
    assert git(tmp_path / "out", "symbolic-ref", "--short", "HEAD") == "main"
    assert "second" in (tmp_path / "out" / "reports" / "daily.ipynb").read_text()
    # The user's own working tree is as it was.
    assert git(repository, "symbolic-ref", "--short", "HEAD") == "trial"
    assert notebook.read_text() == "changed and not committed"
    assert git(repository, "worktree", "list").count("\n") == 0


def test_a_remote_branch_is_fetched(
    backend: Backend, repository: Path, tmp_path: Path, add: Callable[..., Schedule]
) -> None:
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "--quiet", str(repository), str(clone))
    file = clone / "reports" / "daily.ipynb"
    schedule, _ = new_schedule(backend, "remote", file, cron=DAILY, branch="origin/main")
    write_notebook(repository / "reports" / "daily.ipynb", "word = 2", "print('pushed')")
    pushed = commit(repository)
    assert check_source(schedule) == pushed
    repository.rename(tmp_path / "gone")
    with pytest.raises(ScheduleError, match="fetch"):  # And not an old revision, silently.
        check_source(schedule)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"branch": "no-such"}, ScheduleError),
        ({"branch": "--upload-pack=x"}, ScheduleError),
        ({"revision": "0123456789"}, ScheduleError),
        ({"changes": ["9 lives"]}, ScheduleError),
        ({"cron": "0 2"}, ConfigError),
        ({"workspace": Path("/")}, ScheduleError),
        ({"name": "Up"}, ConfigError),
    ],
)
def test_what_cannot_run_is_not_written(
    options: dict[str, object],
    error: type[Exception],
    add: Callable[..., Schedule],
    backend: Backend,
) -> None:
    with pytest.raises(error):
        add(**options)
    assert ScheduleStore(backend.store).names() == []


def test_files_outside_git_and_names_in_use_are_refused(
    backend: Backend, tmp_path: Path, add: Callable[..., Schedule]
) -> None:
    add()
    with pytest.raises(ScheduleError, match="daily"):
        add()
    with pytest.raises(ScheduleError, match="git"):
        new_schedule(backend, "other", write_notebook(tmp_path / "n.ipynb", "1"), cron="")


# --- Notebooks ---


def test_a_notebook_runs_twice_and_the_history_has_the_revisions(
    add: Callable[..., Schedule], backend: Backend, repository: Path
) -> None:
    notebook = repository / "reports" / "daily.ipynb"
    add(changes=["word=3"])
    first, clock = git(repository, "rev-parse", "HEAD"), Clock(MADE_S + DAY_S)
    worker = Scheduler(backend, clock=clock)
    (firing,) = worker.tick()
    done = worker.wait(firing, 60)
    assert (done.state, done.revision, done.branch) == ("SUCCEEDED", first, "main")
    assert printed(done.output or "") == "first 3\n"
    assert worker.tick() == []
    write_notebook(notebook, "word = 0", "import os; raise OSError(os.path.basename(os.getcwd()))")
    second = commit(repository)
    clock.now_s += 2 * DAY_S
    failed = worker.wait(worker.tick()[0], 60)
    assert (failed.state, failed.revision, failed.missed) == ("FAILED", second, 1)
    assert failed.message == "OSError: reports"
    kept = ScheduleStore(backend.store).load("daily").firings
    assert [(each.revision, each.state) for each in kept] == [
        (first, "SUCCEEDED"),
        (second, "FAILED"),
    ]


def test_closing_interrupts_a_notebook(
    add: Callable[..., Schedule], backend: Backend, repository: Path
) -> None:
    notebook = repository / "reports" / "daily.ipynb"
    write_notebook(notebook, "print('began')", "import time; time.sleep(600)")
    commit(repository)
    add(cron="")
    worker = Scheduler(backend)
    firing = worker.fire("daily")
    with pytest.raises(ScheduleError):  # Not twice at once.
        Scheduler(backend).fire("daily")

    def has_begun() -> bool:
        output = ScheduleStore(backend.store).load("daily").firings[-1].output
        if output is None or not Path(output).exists():
            return False
        return '"began\\n"' in Path(output).read_text()  # Its JSON may be half written.

    until(has_begun, timeout_s=60)
    worker.close()
    assert worker.wait(firing).state == "STOPPED"
