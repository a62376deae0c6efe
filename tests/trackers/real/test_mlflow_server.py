"""A real MLflow server that is killed, and a process that is killed, while a run goes on."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from llmops_kernel.metrics.events import EndEvent, EvalEvent
from llmops_kernel.store.journal.journal import FolderTail
from tests.trackers.real import environment as env
from tests.trackers.real.test_read_back import assert_same, steps
from tests.trackers.test_forwarder import journal_of
from tests.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.beside]


def _sent_rows(folder: Path) -> int:
    path = folder / "trackers" / "mlflow.state"
    lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    upto = [line["rows"] for line in lines if "rows" in line]
    sent = max((line["sent"] for line in lines if "sent" in line), default=0)
    return upto[sent - 1] if sent else 0


def test_a_server_and_a_sender_that_are_killed_lose_and_double_nothing(tmp_path: Path) -> None:
    port = env.free_port()
    address = f"http://127.0.0.1:{port}"
    driver = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    with ExitStack() as stack:
        server = stack.enter_context(env.mlflow_server(tmp_path, port))

        def sender() -> subprocess.Popen[bytes]:
            return env.start(tmp_path, ["mlflow"], driver=driver.pid, MLFLOW_TRACKING_URI=address)

        journal_of(tmp_path, "worker-1", *steps(1, 50))
        process = sender()
        until(lambda: _sent_rows(tmp_path) == 50)
        env.kill(server)
        journal_of(tmp_path, "worker-1", *steps(51, 100))
        time.sleep(3)  # It tries, and fails.
        stack.enter_context(env.mlflow_server(tmp_path, port))
        until(lambda: _sent_rows(tmp_path) == 100)
        # Killed right after a batch was begun: the server may or may not have it.
        journal_of(tmp_path, "worker-1", *steps(101, 700))
        until(lambda: _begun_rows(tmp_path) > 100)
        process.kill()
        process.wait()
        process = sender()
        journal_of(tmp_path, "worker-1", EvalEvent(step=700, metrics={"eval_loss": 0.5}))
        journal_of(tmp_path, "driver", EndEvent(state="FAILED", message="No memory."))
        driver.communicate(b"\n")
        assert process.wait(timeout=400) == 0
        found = env.read_back("mlflow", tmp_path, MLFLOW_TRACKING_URI=address)
    assert_same(found["points"], 700)
    assert found["state"] == "FAILED"
    assert found["facts"]["llmops.message"] == "No memory."
    links = [e for e in FolderTail(tmp_path / "journal").read() if e.kind == "tracker"]
    assert [link.url.startswith(f"{address}/#/experiments/") for link in links] == [True]


def _begun_rows(folder: Path) -> int:
    lines = (folder / "trackers" / "mlflow.state").read_text().splitlines()
    return max(json.loads(line).get("rows", 0) for line in lines)
