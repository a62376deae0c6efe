"""The process beside a driver: what it tells the journal, and what it keeps out of its log."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from llmops_kernel.errors import MissingDependencyError, TrackerError
from llmops_kernel.metrics.events import EndEvent, Event, HoldEvent, WarningEvent
from llmops_kernel.trackers.forwarder import Forwarder
from llmops_kernel.trackers.process import Sender
from llmops_kernel.trackers.tracker import Tracker
from tests.trackers.test_forwarder import journal_of, points, run_in, steps
from tests.trackers.toy import Server, ToyTracker
from tests.waiting import until


def sender_of(
    folder: Path, make: Callable[[str], Tracker], *, sees_all: bool = True
) -> tuple[Sender, list[Event], threading.Event]:
    events: list[Event] = []
    is_over = threading.Event()
    forwarder = Forwarder("toy", run_in(folder), folder / "journal", emit=events.append, make=make)
    return (
        Sender(forwarder, emit=events.append, is_over=is_over, sees_all=sees_all),
        events,
        is_over,
    )


def warnings(events: list[Event]) -> list[WarningEvent]:
    return [event for event in events if isinstance(event, WarningEvent)]


def test_a_run_is_followed_to_its_end(tmp_path: Path) -> None:
    server = Server(counts=True)
    sender, events, is_over = sender_of(tmp_path, lambda _: ToyTracker(server))
    journal_of(tmp_path, "worker-1", *steps(1, 3))
    sender.start()
    until(lambda: server.num_rows == 3)
    journal_of(tmp_path, "worker-1", *steps(4, 5))
    journal_of(tmp_path, "driver", EndEvent(state="SUCCEEDED"))
    is_over.set()
    sender.join(60)
    assert sender.is_done
    assert server.points == points(1, 5)
    assert server.states == ["SUCCEEDED"]
    assert warnings(events) == []


def test_a_tracker_that_needs_a_setting_is_one_warning(tmp_path: Path) -> None:
    server = Server(counts=True)
    tries: list[int] = []

    def make(_: str) -> Tracker:
        tries.append(len(tries))
        if len(tries) < 3:
            raise TrackerError("No address at http://ann:secret@host", remedy="set MLFLOW_X")
        return ToyTracker(server)

    journal_of(tmp_path, "worker-1", *steps(1, 3))
    sender, events, is_over = sender_of(tmp_path, make)
    is_over.set()
    sender.start()
    sender.join(60)
    assert server.points == points(1, 3)
    (warning,) = warnings(events)
    assert "secret" not in warning.message
    assert "set MLFLOW_X" in warning.remedy
    assert "`llmops report" in warning.remedy


def test_a_missing_package_is_one_warning_and_the_end(tmp_path: Path) -> None:
    def make(_: str) -> Tracker:
        raise MissingDependencyError("The package of toy is not installed here", remedy="add it")

    journal_of(tmp_path, "worker-1", *steps(1, 3))
    sender, events, _ = sender_of(tmp_path, make)
    sender.start()
    sender.join(60)
    assert sender.is_done
    ((message, remedy),) = [(event.message, event.remedy) for event in warnings(events)]
    assert message.startswith("The package of toy is not installed here")
    assert remedy == "add it"


@pytest.mark.parametrize(("sees_all", "count"), [(False, 1), (True, 0)])
def test_steps_on_another_node_are_said_to_be_missing(
    tmp_path: Path, sees_all: bool, count: int
) -> None:
    holds = [HoldEvent(node=node, state="begin") for node in ("a", "b")]
    journal_of(tmp_path, "driver", *holds, EndEvent(state="SUCCEEDED"))
    server = Server(counts=True)
    sender, events, is_over = sender_of(tmp_path, lambda _: ToyTracker(server), sees_all=sees_all)
    is_over.set()
    sender.start()
    sender.join(60)
    assert server.states == ["SUCCEEDED"]
    assert ["another node" in event.message for event in warnings(events)] == [True] * count


def test_what_a_client_prints_is_logged_without_secrets(tmp_path: Path) -> None:
    log = tmp_path / "trackers.log"
    code = (
        "import os, sys\n"
        "from pathlib import Path\n"
        "from llmops_kernel.trackers.process import write_redacted\n"
        "thread = write_redacted(Path(sys.argv[1]))\n"
        "print('key', os.environ['WANDB_API_KEY'], flush=True)\n"
        "os.system('echo of a child: $WANDB_API_KEY at http://ann:pw@host >&2')\n"
        "os.close(1), os.close(2)\n"
        "thread.join(30)\n"
        "os._exit(0)\n"
    )
    env = {**os.environ, "WANDB_API_KEY": "sesame-open"}
    subprocess.run([sys.executable, "-c", code, str(log)], env=env, check=True)
    lines = [line.partition(" ")[2] for line in log.read_text().splitlines()]
    assert lines == ["key ***", "of a child: *** at http://***@host"]
