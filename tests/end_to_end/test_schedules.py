"""A schedule of a real training: two runs of two revisions of a branch, then a pinned one."""

from __future__ import annotations

from pathlib import Path

import pytest

from llmops_kernel.cli.main import main
from llmops_kernel.providers.protocol import ClusterInfo
from llmops_kernel.services.backend import Backend
from llmops_kernel.services.runs import Run
from llmops_kernel.services.schedule_source import new_schedule, pin
from llmops_kernel.services.scheduler import Scheduler
from llmops_kernel.services.schedules import Firing, ScheduleStore, short
from tests.services.schedules.repository import commit, git, init
from tests.tiny_training import write_training
from tests.waiting import until

pytestmark = [pytest.mark.ray, pytest.mark.timeout(300)]
DAY_S = 86400.0


def test_it_runs_twice_and_the_records_say_which_revision(
    ray_cluster: ClusterInfo, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    backend, repository = Backend(), init(tmp_path / "user")
    config = write_training(repository / "configs", "timed")
    first, now_s = commit(repository), 20 * 365 * DAY_S
    new_schedule(
        *(backend, "timed", config),
        cron="0 2 * * *",
        cluster=ray_cluster.name,
        changes=["training.max_steps=2"],
        now_s=now_s,
    )
    worker = Scheduler(backend, clock=lambda: now_s, report=print)

    def fire() -> Firing:
        (firing,) = worker.tick()
        return worker.wait(firing)

    now_s += DAY_S
    firings = [fire()]
    now_s += DAY_S
    assert worker.tick() == []  # Its last run has not ended: it waits for that.
    end(backend, firings[0])
    write_training(repository / "configs", "timed", training={"global_batch_size": 4})
    second = commit(repository)
    firings.append(fire())
    end(backend, firings[1])
    pin(backend, "timed", revision=first)
    now_s += DAY_S
    firings.append(fire())
    Run(backend, firings[2].runs[0]).stop()

    assert [each.revision for each in firings] == [first, second, first]
    assert [state(backend, each) for each in firings] == [
        (first, "main", False, 2, "timed"),
        (second, "main", False, 4, "timed"),
        (first, None, False, 2, "timed"),
    ]
    assert git(repository, "status", "--porcelain") == ""
    kept = ScheduleStore(backend.store).load("timed").firings
    assert [each.state for each in kept[:2]] == ["SUCCEEDED", "SUCCEEDED"]
    capsys.readouterr()
    with pytest.raises(SystemExit):
        main(["schedule", "show", "timed"])
    lines = capsys.readouterr().out.splitlines()
    for firing in firings:
        assert short(firing.revision) in next(line for line in lines if firing.runs[0] in line)


def state(backend: Backend, firing: Firing) -> tuple[str, str | None, bool, int, str]:
    """Return what the record of its run says: revision, branch, changes, batch size, group."""
    record = backend.store.record(firing.runs[0])
    assert record.git is not None
    batch_size = record.config["training"]["global_batch_size"]
    group = backend.store.notes(record.run_id).group
    return record.git.revision, record.git.branch, record.git.dirty, batch_size, group


def end(backend: Backend, firing: Firing) -> None:
    until(lambda: Run(backend, firing.runs[0]).state == "SUCCEEDED", timeout_s=200)
