"""Each step arrives once, whenever the process that sends it is killed."""

from __future__ import annotations

from pathlib import Path

import pytest

from llmops_kernel.errors import TrackerError
from llmops_kernel.metrics.events import EndEvent, EvalEvent, Event, StepEvent, WarningEvent
from llmops_kernel.store.journal.journal import JournalWriter
from llmops_kernel.store.run_notes import RunNotes
from llmops_kernel.trackers.forwarder import Forwarder, send_rest, sending
from llmops_kernel.trackers.tracker import TrackedRun
from tests.trackers.toy import Killed, Server, ToyTracker


def run_in(folder: Path, **fields: object) -> TrackedRun:
    values = {"config": {"name": "tags"}, "facts": {}, "home": folder, "kind": "train"} | fields
    return TrackedRun(
        run_id="tags-1", name="tags", folder=folder / "trackers", notes=RunNotes(), **values
    )


def forwarder(folder: Path, server: Server, events: list[Event] | None = None) -> Forwarder:
    return Forwarder(
        "toy",
        run_in(folder),
        folder / "journal",
        emit=([] if events is None else events).append,
        make=lambda _: ToyTracker(server),
    )


def journal_of(folder: Path, stream: str, *events: Event, attempt: int = 1) -> None:
    writer = JournalWriter([folder / "journal"], stream=f"{attempt}-{stream}", attempt=attempt)
    for event in events:
        writer.emit(event)
    writer.close()


def steps(first: int, last: int) -> list[StepEvent]:
    return [StepEvent(step=n, loss=1 / n, time_s=100.0 + n) for n in range(first, last + 1)]


def points(first: int, last: int) -> list[tuple[int, str, float]]:
    return [(n, "train/loss", 1 / n) for n in range(first, last + 1)]


def killed_at(folder: Path, *, counts: bool, at: int) -> Server:
    """Send a run that grows meanwhile; the process is killed in one call, and started again."""
    server = Server(counts, kill_at=at)
    parts = [steps(1, 3), steps(4, 6), [EvalEvent(step=6, metrics={"eval_loss": 0.5})]]
    for number in range(2):  # The second process is not killed.
        sender = forwarder(folder, server)
        try:
            while parts:
                journal_of(folder, "worker-1", *parts.pop(0))
                sender.advance()
            break
        except Killed:
            assert number == 0
    journal_of(folder, "driver", EndEvent(state="SUCCEEDED"))
    try:
        send_rest(sender, is_over=True)
    except Killed:
        send_rest(forwarder(folder, server), is_over=True)
    return server


@pytest.mark.parametrize("counts", [True, False])
def test_a_kill_in_any_call_loses_and_doubles_nothing(tmp_path: Path, counts: bool) -> None:
    num_calls = killed_at(tmp_path / "quiet", counts=counts, at=-1).calls
    assert num_calls > 10
    for at in range(num_calls):
        server = killed_at(tmp_path / str(at), counts=counts, at=at)
        assert server.points == [*points(1, 6), (6, "eval/loss", 0.5)], f"killed in call {at}"
        assert server.states == ["SUCCEEDED"]


@pytest.mark.parametrize("counts", [True, False])
def test_a_kill_within_a_line_of_the_state_loses_and_doubles_nothing(
    tmp_path: Path, counts: bool
) -> None:
    first = tmp_path / "first"
    server = Server(counts)
    journal_of(first, "worker-1", *steps(1, 3))
    assert forwarder(first, server).advance()
    state = (first / "trackers" / "toy.state").read_bytes()
    begin = state.index(b'{"upto"')
    journal = (first / "journal" / "1-worker-1.jsonl").read_bytes()
    for size in range(begin, len(state)):
        folder = tmp_path / str(size)
        for name, data in {
            "trackers/toy.state": state[:size],
            "journal/1-worker-1.jsonl": journal,
        }.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(data)
        # The server has the batch if it was begun: its line is written before.
        has_begun = b'"rows"' in state[:size] and state[:size].count(b"\n") > 1
        there = Server(counts, points=points(1, 3) if has_begun else [], num_rows=3 * has_begun)
        journal_of(folder, "worker-1", *steps(4, 5))
        send_rest(forwarder(folder, there), is_over=False)
        journal_of(folder, "worker-1", *steps(6, 6))
        send_rest(forwarder(folder, there), is_over=False)
        assert there.points == points(1, 6), f"the state ended after {size} bytes"


def test_a_tracker_that_is_down_gets_all_later(tmp_path: Path) -> None:
    class Down(ToyTracker):
        def send(self, *_: object, **__: object) -> str:
            raise ConnectionError("refused: http://ann:secret@tracker/")

    server = Server(counts=False)
    is_down = [True]
    sender = Forwarder(
        "toy",
        run_in(tmp_path),
        tmp_path / "journal",
        emit=lambda _: None,
        make=lambda _: (Down if is_down[0] else ToyTracker)(server),
    )
    journal_of(tmp_path, "worker-1", *steps(1, 3))
    for _ in range(3):
        with pytest.raises(ConnectionError):
            sender.advance()
    with pytest.raises(TrackerError) as raised:
        send_rest(sender, is_over=False)
    assert "ConnectionError" in raised.value.message
    assert "secret" not in str(raised.value)
    is_down[0] = False
    journal_of(tmp_path, "worker-1", *steps(4, 5))
    send_rest(sender, is_over=False)
    assert server.points == points(1, 5)


def test_attempts_continue_one_run(tmp_path: Path) -> None:
    server = Server(counts=True)
    journal_of(tmp_path, "worker-1", *steps(1, 3))
    journal_of(tmp_path, "driver", EndEvent(state="STOPPED"))
    first = forwarder(tmp_path, server)
    send_rest(first, is_over=True)
    journal_of(tmp_path, "worker-1", *steps(3, 5), attempt=2)
    running = forwarder(tmp_path, server)
    while running.advance():
        pass
    assert running.state == ""
    journal_of(tmp_path, "driver", EndEvent(state="FAILED"), attempt=2)
    send_rest(running, is_over=True)
    assert server.points == points(1, 5)
    assert server.states == ["STOPPED", "FAILED"]


def test_the_journal_says_where_the_run_is(tmp_path: Path) -> None:
    events: list[Event] = []
    journal_of(tmp_path, "worker-1", *steps(1, 2))
    send_rest(forwarder(tmp_path, Server(counts=True), events), is_over=False)
    send_rest(forwarder(tmp_path, Server(counts=True), events), is_over=False)
    assert [event.name for event in events] == ["toy"]


def test_a_long_journal_is_sent_in_the_order_of_its_worker_groups(tmp_path: Path) -> None:
    """Parts of all streams are read, and the second group is not to overtake the first."""
    journal_of(tmp_path, "worker-1", *steps(1, 3000))
    journal_of(
        tmp_path,
        "worker-2",
        *(s.model_copy(update={"time_s": 9000.0 + s.step}) for s in steps(2001, 4000)),
    )
    server = Server(counts=True)
    send_rest(forwarder(tmp_path, server), is_over=False)
    assert server.points == points(1, 4000)


def test_two_processes_do_not_send_the_same_run(tmp_path: Path) -> None:
    run = run_in(tmp_path)
    with sending(run), pytest.raises(TrackerError, match="Another process"), sending(run):
        pass
    with sending(run):
        pass


def test_a_warning_is_a_fact_and_no_row(tmp_path: Path) -> None:
    journal_of(tmp_path, "driver", WarningEvent(message="slow disk"))
    server = Server(counts=True)
    assert send_rest(forwarder(tmp_path, server), is_over=False) == 1
    assert (server.points, server.num_rows) == ([], 0)
