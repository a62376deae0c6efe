"""The whole loop from the command line, each command in a process of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from llmops_kernel.services.doctor_trial import write_workspace
from tests.cli.conftest import process

pytestmark = [pytest.mark.ray, pytest.mark.slow]


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A tiny config and data, and a cluster that `llmops up` started."""
    folder = tmp_path_factory.mktemp("loop") / "w"
    write_workspace(folder)
    done = process("up")
    assert done.returncode == 0, done.stderr
    yield folder
    process("down", "--missing-ok")


@pytest.fixture
def config(workspace: Path) -> str:
    return str(workspace / "doctor.train.yaml")


@pytest.mark.usefixtures("workspace")
def test_up_attaches_to_the_cluster_that_is_there() -> None:
    before = json.loads(process("status", "--json").stdout)
    assert process("up").returncode == 0
    after = json.loads(process("status", "--json").stdout)
    assert after["dashboard_url"] == before["dashboard_url"]
    # Other tests of the session have clusters of their own.
    listed = {one["name"]: one for one in json.loads(process("ls", "--json").stdout)}
    assert listed["local"]["state"] == "ready"


def test_a_run_is_submitted_followed_and_shown(config: str) -> None:
    submitted = process("submit", config, "training.max_steps=3", "--detach")
    assert submitted.returncode == 0, submitted.stderr
    waited = process("wait", "--json")
    reported = json.loads(waited.stdout)
    assert waited.returncode == 0, reported
    assert reported["state"] == "SUCCEEDED"
    assert reported["last_step"] == 3
    assert reported["run_id"] in submitted.stdout
    shown = process("show", "last").stdout
    assert "training.max_steps=3" in shown
    assert "Start-up" in shown
    assert process("logs", "last").stdout.strip()
    (newest,) = json.loads(process("runs", "--limit", "1", "--json").stdout)
    assert newest["run_id"] == reported["run_id"]


def test_a_second_run_differs_in_what_was_changed(config: str) -> None:
    again = process("resubmit", "last", "optimizer.learning_rate=0.001", "--follow")
    assert again.returncode == 0, again.stderr
    differs = process("diff", "last~1", "last").stdout
    assert "optimizer.learning_rate" in differs
    assert "0.001" in process("compare", "last~1", "last").stdout


def test_ctrl_c_detaches_and_stop_stops(config: str) -> None:
    command = [sys.executable, "-m", "llmops_kernel.cli.main", "submit", config, "--follow"]
    follower = subprocess.Popen(
        [*command, "training.max_steps=5000"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    assert follower.stdout is not None
    assert follower.stdout.readline()
    follower.send_signal(signal.SIGINT)
    _, error = follower.communicate(timeout=30)
    assert follower.returncode == 130
    assert "continues" in error
    assert "llmops wait" in error
    _until_step(1)
    assert process("stop", "last").returncode == 0
    waited = process("wait", "--json", "--timeout", "90")
    reported = json.loads(waited.stdout)
    assert waited.returncode == 3, waited.stderr[-2000:]
    assert reported["state"] == "STOPPED"
    assert reported["checkpoint"]


def _until_step(number: int) -> None:
    deadline_s = time.monotonic() + 90
    while time.monotonic() < deadline_s:
        if (json.loads(process("show", "--json").stdout)["last_step"] or 0) >= number:
            return
        time.sleep(0.5)
    pytest.fail(f"no step {number} within 90 s")


def test_time_runs_out_with_a_code_of_its_own(config: str) -> None:
    assert process("submit", config, "training.max_steps=5000").returncode == 0
    assert process("wait", "--timeout", "0.5").returncode == 124
    process("stop", "last")
    assert process("wait", "--json", "--timeout", "90").returncode in (1, 3)


def test_a_wrong_config_starts_nothing(config: str) -> None:
    before = process("runs", "--json").stdout
    refused = process("submit", config, "optimizer.learning_rat=1")
    assert refused.returncode == 1
    assert "learning_rate" in refused.stderr
    assert process("runs", "--json").stdout == before


@pytest.mark.usefixtures("workspace")
def test_down_stops_it() -> None:
    assert process("down").returncode == 0
    assert process("status").returncode == 1
    assert process("up").returncode == 0
    assert process("down").returncode == 0
