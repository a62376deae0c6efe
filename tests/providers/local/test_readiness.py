"""What a submission needs of a head, and what is said where it does not have it."""

from __future__ import annotations

import http.server
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from llmops_kernel.hardware.load import busy_words, load_per_core, patience_s
from llmops_kernel.providers.local.cleanup import unregistered
from llmops_kernel.providers.local.record import HeadRecord, cluster_folder
from llmops_kernel.providers.local.start import StartCutShort
from llmops_kernel.providers.local.status import unready
from tests.providers.conftest import head_record

NOT_REGISTERED = (
    "[{stamp},123 E 25 25] (raylet) worker_pool.cc:608: Some workers of the worker process(77)"
    " have not registered within the timeout. The process is still alive, probably it's hanging"
    " during start.\n"
)


@pytest.fixture
def record(tmp_path: Path) -> HeadRecord:
    """A head whose session is a folder of this test."""
    made = head_record(tmp_path)
    (tmp_path / "session_1").mkdir()
    (tmp_path / "session_latest").symlink_to("session_1")
    (made.session / "logs").mkdir(parents=True)
    return made


@pytest.fixture
def agent(record: HeadRecord) -> Iterator[type]:
    """An agent of Ray's: its answer to the question for its health."""

    class Agent(http.server.BaseHTTPRequestHandler):
        status = 200

        def do_GET(self) -> None:
            self.send_response(self.status)
            self.end_headers()
            self.wfile.write(b"success")

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Agent) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        (record.session / "dashboard_agent_listen_port_1a2b").write_text(str(server.server_port))
        yield Agent
        server.shutdown()


def stamped(seconds_ago: float) -> str:
    at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(time.time() - seconds_ago))
    return NOT_REGISTERED.format(stamp=at)


def test_jobs_api_agent_and_workers_are_asked(record: HeadRecord, agent: type) -> None:
    assert unready(record, jobs_answer=True) == ""
    assert "Jobs API" in unready(record, jobs_answer=False)
    agent.status = 503  # type: ignore[attr-defined]
    assert unready(record, jobs_answer=True) == (
        "the agent that starts drivers does not answer (HTTP 503)"
    )
    agent.status = 200  # type: ignore[attr-defined]
    (record.session / "logs/raylet.out").write_text(stamped(90) + stamped(30))
    assert unready(record, jobs_answer=True).startswith("Ray's worker processes do not come up: 2")


def test_without_an_agent(record: HeadRecord) -> None:
    assert unready(record, jobs_answer=True) == "the agent that starts drivers is not up yet"
    (record.session / "dashboard_agent_listen_port_1a2b").write_text("1")
    assert "does not answer (" in unready(record, jobs_answer=True)


def test_one_slow_worker_or_an_old_one_is_no_reason(record: HeadRecord) -> None:
    log = record.session / "logs/raylet.out"
    assert unregistered(record) == ""
    log.write_text(stamped(30))
    assert unregistered(record) == ""
    log.write_text(stamped(7200) + stamped(7100) + stamped(30))
    assert unregistered(record) == ""
    log.write_text(stamped(90) + stamped(30))
    assert "2 did not register in time within the last 10 minutes" in unregistered(record)
    (record.session / "logs/python-core-worker-ab_12.log").touch()  # One came up since.
    assert unregistered(record) == ""


def test_a_failed_start_is_one_sentence_and_a_file(tmp_path: Path) -> None:
    folder = cluster_folder(tmp_path, "local")
    folder.create()
    log = "--- raylet.out\nframe 1\nframe 2"
    error = StartCutShort("The head was not ready within 9 s", log=log, phase="GCS is starting")
    known = error.as_start_error(folder)
    assert known.message.startswith("The head was not ready within 9 s (GCS is starting)")
    assert "frame" not in known.message
    assert str(folder.failed_start) in known.remedy
    assert folder.failed_start.read_text() == log
    assert (busy_words() in known.message) or not busy_words()


def test_patience_grows_with_the_load() -> None:
    per_core = load_per_core()
    assert per_core is not None
    assert 10.0 <= patience_s(10.0) <= 100.0
    assert patience_s(10.0, most=1.0) == 10.0
