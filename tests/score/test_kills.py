"""Killed at random moments, a score run still has every row once, and nothing stays behind."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

import llmops_kernel as llmops
from llmops_kernel.config.models.cluster import ClusterTemplate
from llmops_kernel.errors import ClusterError
from llmops_kernel.providers.local.provider import LocalProvider
from llmops_kernel.store.paths import home
from tests.end_to_end.conftest import processes
from tests.score.conftest import numbered, output_of, table_of, write_workspace
from tests.waiting import until

pytestmark = [pytest.mark.ray, pytest.mark.slow]
ROWS = 2000
VICTIMS = ("engine", "scorer", "driver", "client")
TITLES = {"engine": "ray::EngineActor", "scorer": "ray::Scorer", "driver": "score.driver"}
KEEP_S = 4


def start_victim() -> llmops.Cluster:
    LocalProvider().up(ClusterTemplate(name="victim"))
    return llmops.cluster("victim")


@pytest.fixture
def own_cluster() -> Iterator[llmops.Cluster]:
    """A cluster that a test may kill."""
    cluster = start_victim()
    yield cluster
    llmops.cluster("victim").down(force=True)


def submit(cluster: llmops.Cluster, folder: Path) -> llmops.Run:
    path = write_workspace(folder, numbered(ROWS))
    options = {"engine.options": {"step_s": 0.03}, "engine.keep_s": KEEP_S, "output.part_rows": 50}
    return cluster.submit(path, overrides=options)


def kill(title: str) -> None:
    """Kill the newest process of that name, as the kernel does when memory runs out."""
    for process in reversed(processes(title)):
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue
        return


def kill_head(name: str) -> None:
    record = json.loads((home() / "clusters" / name / "cluster.json").read_text())
    os.kill(int(record["pid"]), signal.SIGKILL)
    for process in processes("gcs_server"):
        # It may end by itself at any moment, the head being gone.
        with contextlib.suppress(psutil.Error):
            if name in " ".join(process.cmdline()):
                process.kill()


def follow(run: llmops.Run) -> subprocess.Popen[bytes]:
    line = [sys.executable, "-m", "llmops_kernel.cli.main", "wait", run.id]
    return subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def to_the_end(run: llmops.Run) -> int:
    """Wait, and retry what was lost, as a user would; return the number of attempts."""
    for attempt in range(1, 4):
        run.wait(120, raise_on_failure=False)
        if run.view.state == "SUCCEEDED":
            return attempt
        try:
            run.retry()
        except ClusterError as error:  # Its logs go with the test's home.
            tail = LocalProvider().get(run.record.cluster).log_tail
            raise AssertionError(f"{error}\n{tail}") from error
    raise AssertionError(f"{run.view.state}: {run.view.message}")


def assert_whole(run: llmops.Run) -> None:
    rows = table_of(output_of(run))
    assert [row["id"] for row in rows] == [f"r{n}" for n in range(ROWS)]
    assert all(row["output"] == row["text"] for row in rows)
    assert (output_of(run) / "_SUCCESS").exists()
    assert not list(output_of(run).glob(".*")), "no half written file"


def running() -> set[int]:
    return {process.pid for title in TITLES.values() for process in processes(title)}


def gone(before: set[int]) -> Callable[[], bool]:
    """Whether nothing runs that did not run before: other tests leave engines that wait."""
    return lambda: not running() - before


def test_eight_kills_of_engine_scorer_driver_and_client(
    cluster: llmops.Cluster, tmp_path: Path
) -> None:
    """Each of them twice; `python -m tests.soak.kills` goes on as long as one likes."""
    chance, before = random.Random(11), running()
    for number in range(8):
        victim = VICTIMS[number % 4]
        run = submit(cluster, tmp_path / f"w{number}")
        follower = follow(run) if victim == "client" else None
        until(lambda run=run: (run.view.last_step or 0) > 0)
        time.sleep(chance.uniform(0.0, 1.0))
        if follower is not None:
            follower.kill()
            follower.wait()
        else:
            kill(TITLES[victim])
        attempts = to_the_end(run)
        assert attempts <= (2 if victim == "driver" else 1), f"kill {number}: {victim}"
        assert_whole(run)
    until(gone(before), timeout_s=60)


@pytest.mark.nightly
def test_two_kills_of_the_head(own_cluster: llmops.Cluster, tmp_path: Path) -> None:
    cluster = own_cluster
    chance, before = random.Random(12), running()
    for number in range(2):
        run = submit(cluster, tmp_path / f"h{number}")
        until(lambda run=run: (run.view.last_step or 0) > 0)
        time.sleep(chance.uniform(0.0, 1.0))
        kill_head("victim")
        run.wait(120, raise_on_failure=False)
        until(gone(before), timeout_s=90)
        cluster = start_victim()
        if run.view.state != "SUCCEEDED":
            run.retry()
            to_the_end(run)
        assert_whole(run)


def test_a_row_that_kills_the_engine_gets_an_error_and_the_others_an_answer(
    cluster: llmops.Cluster, tmp_path: Path
) -> None:
    rows = numbered(300)
    rows[123]["text"] = "the row that kills it [crash]"
    rows[250]["text"] = "the row that breaks it [break]"
    path = write_workspace(tmp_path / "poison", rows)
    run = cluster.submit(path, overrides={"engine.keep_s": KEEP_S})
    run.wait(300)
    found = table_of(output_of(run))
    bad = [row["row_number"] for row in found if row["error"]]
    assert bad == [123, 250]
    assert "process died while it scored this row" in found[123]["error"]
    assert [row["id"] for row in found] == [f"r{n}" for n in range(300)]
