from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmops_kernel.metrics.events import EvalEvent, FailureEvent, WarningEvent
from llmops_kernel.store.journal.journal import (
    Deduplicator,
    FolderTail,
    JournalWriter,
    StreamTail,
    merge,
    read_lines,
)
from tests.store.events import step


def warn(text: str = "w", **fields) -> WarningEvent:
    return WarningEvent(message=text, **fields)


def writer(*folders: Path, stream: str = "1-driver", **options) -> JournalWriter:
    return JournalWriter(folders, stream=stream, attempt=1, **options)


def read(folder: Path):
    return FolderTail(folder).read()


def in_subprocess(code: str, *arguments: object) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)], stdout=subprocess.PIPE
    )


def test_events_are_numbered_stamped_and_in_every_folder(tmp_path):
    out = writer(tmp_path / "a", tmp_path / "b", clock=lambda: 7.0)
    written = [out.emit(warn("x")), out.emit(warn("y"))]
    assert [(e.stream, e.seq, e.time_s, e.attempt) for e in written] == [
        ("1-driver", 1, 7.0, 1),
        ("1-driver", 2, 7.0, 1),
    ]
    assert read(tmp_path / "a") == read(tmp_path / "b") == written


def test_time_never_steps_back_even_across_writers(tmp_path):
    clock = iter([10.0, 12.0, 5.0, 13.0])
    out = writer(tmp_path, clock=lambda: next(clock))
    assert [out.emit(warn()).time_s for _ in range(4)] == [10, 12, 12, 13]
    assert writer(tmp_path, clock=lambda: 1.0).emit(warn()).time_s == 13


def test_an_event_keeps_a_time_of_its_own(tmp_path):
    out = writer(tmp_path, clock=lambda: 10.0)
    assert [out.emit(warn(time_s=t)).time_s for t in (3.0, 0.0)] == [3.0, 10.0]


def test_a_writer_opened_again_goes_on_counting(tmp_path):
    writer(tmp_path).emit(warn())
    again = writer(tmp_path)
    assert again.emit(warn()).seq == 2
    # Also when the last event alone is longer than the tail that is read for it.
    again.emit(warn("x" * 200_000))
    assert writer(tmp_path).emit(warn()).seq == 4


@pytest.mark.parametrize("cut", [1, 10, 40])
def test_half_a_line_of_a_killed_writer_is_closed_off(tmp_path, cut):
    writer(tmp_path).emit(warn("one"))
    path = tmp_path / "1-driver.jsonl"
    path.write_bytes(path.read_bytes() + path.read_bytes()[:cut])
    assert [e.seq for e in read(tmp_path)] == [1]
    writer(tmp_path).emit(warn("two"))
    assert [(e.seq, e.message) for e in read(tmp_path)] == [(1, "one"), (2, "two")]


def test_a_line_that_lacks_only_its_newline_counts(tmp_path):
    writer(tmp_path).emit(warn("one"))
    path = tmp_path / "1-driver.jsonl"
    path.write_bytes(path.read_bytes()[:-1])
    assert writer(tmp_path).emit(warn("two")).seq == 2
    assert [e.seq for e in read(tmp_path)] == [1, 2]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 10**6), max_size=8))
def test_a_tail_gives_each_line_once_wherever_the_reads_fall(tmp_path_factory, cuts):
    folder = tmp_path_factory.mktemp("tail")
    out = writer(folder / "whole")
    for n in range(5):
        out.emit(warn(f"é{n}"))
    data = (folder / "whole" / "1-driver.jsonl").read_bytes()
    tail = StreamTail(folder / "part.jsonl")
    got = tail.read()  # The file does not exist yet.
    for cut in [*sorted(cut % len(data) for cut in cuts), len(data)]:
        (folder / "part.jsonl").write_bytes(data[:cut])
        got += tail.read()
    assert [e.seq for e in got] == [1, 2, 3, 4, 5]


def test_unknown_kinds_and_broken_lines_are_left_out():
    good = warn(stream="s", seq=3).model_dump_json().encode()
    lines = [b"", b"{", b"\xff\xfe", b'{"kind": "hologram", "seq": 1}', b"[]", good]
    assert [e.seq for e in read_lines(b"\n".join([*lines, b""]))] == [3]


def test_folder_tail_sees_streams_that_appear_later(tmp_path):
    tail = FolderTail(tmp_path / "journal")
    assert tail.read() == []
    outs = [
        writer(tmp_path / "journal", stream=f"1-worker-{n}", clock=lambda n=n: float(50 - n))
        for n in range(40)
    ]
    for out in outs:
        out.emit(warn(out.stream))
    seen = tail.read()
    assert [e.time_s for e in seen] == sorted(50.0 - n for n in range(40))
    assert tail.read() == []
    outs[3].emit(warn("more"))
    assert [e.message for e in tail.read()] == ["more"]


def test_nan_infinity_and_lone_surrogates_survive(tmp_path):
    out = writer(tmp_path)
    metrics = {"eval_loss": float("nan"), "gain": float("inf")}
    out.emit(EvalEvent(step=1, metrics=metrics, num_rows=1, duration_s=1.0))
    out.emit(FailureEvent(error="E", message="bad name \udcff", traceback="ok é"))
    evaluated, failed = read(tmp_path)
    assert str(evaluated.metrics) == str(metrics)
    assert (failed.message, failed.traceback) == ("bad name ?", "ok é")


LIMITED = """
import resource, sys
from pathlib import Path
from llmops_kernel.metrics.events import WarningEvent
from llmops_kernel.store.journal.journal import JournalWriter
hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
resource.setrlimit(resource.RLIMIT_FSIZE, (2000, hard))
out = JournalWriter([Path(sys.argv[1])], stream="1-driver", attempt=1)
for n in range(100):
    out.emit(WarningEvent(message=f"event {n}"))
size = (Path(sys.argv[1]) / "1-driver.jsonl").stat().st_size
print(size, out.num_waiting, flush=True)
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
if sys.argv[2] == "event":
    out.emit(WarningEvent(message="space again"))
else:
    out.close()
print(out.num_waiting)
"""


@pytest.mark.parametrize(("then", "total"), [("event", 101), ("close", 100)])
def test_a_full_disk_loses_nothing_once_there_is_space_again(tmp_path, then, total):
    process = in_subprocess(LIMITED, tmp_path, then)
    output, _ = process.communicate(timeout=60)
    full, after = output.split(b"\n")[:2]
    size, waiting = map(int, full.split())
    assert process.returncode == 0
    assert size == 2000  # The last line that fitted was cut in the middle.
    assert waiting > 70
    assert after == b"0"
    assert [e.seq for e in read(tmp_path)] == list(range(1, total + 1))


def test_an_absent_folder_is_tried_again(tmp_path):
    blocked = tmp_path / "blocked"
    blocked.write_text("a file where the folder should be")
    out = writer(blocked / "journal", tmp_path / "fine")
    out.emit(warn("one"))
    assert out.num_waiting == 0  # One folder has it.
    blocked.unlink()
    out.emit(warn("two"))
    assert [e.message for e in read(blocked / "journal")] == ["one", "two"]


BURST = """
import os, sys
from pathlib import Path
from llmops_kernel.metrics.events import StepEvent
from llmops_kernel.store.journal.journal import JournalWriter
out = JournalWriter([Path(p) for p in sys.argv[1:]], stream="1-worker-1", attempt=1)
n = 0
while True:
    n += 1
    event = StepEvent(step=n, step_time_s=.1, data_wait_s=0, compute_s=.1, tokens=1)
    os.write(1, b"%d\\n" % out.emit(event).seq)
"""


def test_kill_9_in_the_middle_of_a_burst_loses_nothing_that_emit_returned_for(tmp_path):
    folders = [tmp_path / "a", tmp_path / "b"]
    process = in_subprocess(BURST, *folders)
    assert process.stdout is not None
    got = b"".join(process.stdout.readline() for _ in range(500))
    process.send_signal(signal.SIGKILL)
    got += process.stdout.read()
    process.wait()
    returned = int(got[: got.rfind(b"\n")].split(b"\n")[-1])
    assert returned >= 500
    for folder in folders:
        seqs = [e.seq for e in read(folder)]
        assert seqs == list(range(1, len(seqs) + 1))
        assert len(seqs) >= returned
    assert writer(*folders, stream="1-worker-1").emit(warn()).seq > returned


SHARED = """
import sys
from pathlib import Path
from llmops_kernel.metrics.events import WarningEvent
from llmops_kernel.store.journal.journal import JournalWriter
out = JournalWriter([Path(sys.argv[1])], stream="1-client", attempt=1)
for n in range(200):
    out.emit(WarningEvent(message=sys.argv[2]))
"""


def test_several_processes_may_write_one_client_stream(tmp_path):
    processes = [in_subprocess(SHARED, tmp_path, name) for name in "abc"]
    assert [process.wait(timeout=60) for process in processes] == [0, 0, 0]
    events = StreamTail(tmp_path / "1-client.jsonl").read()
    assert [e.seq for e in events] == list(range(1, 601))
    assert sorted(e.message for e in events) == sorted("abc" * 200)


def test_threads_share_a_writer(tmp_path):
    out = writer(tmp_path)
    threads = [
        threading.Thread(target=lambda: [out.emit(warn()) for _ in range(200)]) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [e.seq for e in StreamTail(tmp_path / "1-driver.jsonl").read()] == list(range(1, 801))


def test_a_signal_handler_may_emit_in_the_middle_of_emit(tmp_path):
    out = writer(tmp_path)
    previous = signal.signal(signal.SIGALRM, lambda *_: out.emit(warn("signal")))
    signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
    try:
        mine = [out.emit(warn("main")).seq for _ in range(5000)]
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
    events = read(tmp_path)
    assert sorted(e.seq for e in events) == list(range(1, len(events) + 1))
    assert {e.seq for e in events if e.message == "main"} == set(mine)
    assert len(events) > 5000


def test_a_step_costs_the_training_loop_less_than_100_microseconds(tmp_path):
    out = writer(tmp_path / "a", tmp_path / "b", stream="1-worker-1")
    events = [step(n, learning_rate=1e-4, flops=1e12, host_memory_bytes=1) for n in range(1, 3001)]
    costs = []
    for event in events:
        begin = time.perf_counter()
        out.emit(event)
        costs.append(time.perf_counter() - begin)
    assert statistics.median(costs) < 100e-6


def test_100_000_events_are_read_whole_and_in_order(tmp_path):
    line = step(7, stream="1-worker-1", time_s=7.0).model_dump_json(exclude_none=True)
    lines = (line.replace("7", str(n)) for n in range(1, 100_001))
    (tmp_path / "1-worker-1.jsonl").write_text("\n".join(lines) + "\n")
    begin = time.process_time()
    seqs = [e.seq for e in read(tmp_path)]
    assert seqs == list(range(1, 100_001))
    assert time.process_time() - begin < 10
    assert writer(tmp_path, stream="1-worker-1").emit(warn()).seq == 100_001


def test_deduplicator_passes_each_event_once_and_names_gaps(tmp_path):
    out = writer(tmp_path)
    events = [out.emit(warn(str(n))) for n in range(5)]
    seen = Deduplicator()
    assert seen.new([events[0], events[3], events[0]]) == [events[0], events[3]]
    assert seen.gaps() == {"1-driver": [2, 3]}
    assert seen.new(events) == [events[1], events[2], events[4]]
    assert seen.gaps() == {}


def test_merge_is_by_time_and_then_by_place_in_the_stream():
    a = [warn(stream="a", seq=1, time_s=1.0), warn(stream="a", seq=2, time_s=3.0)]
    b = [warn(stream="b", seq=1, time_s=1.0), warn(stream="b", seq=2, time_s=2.0)]
    assert [(e.stream, e.seq) for e in merge([b, a])] == [("a", 1), ("b", 1), ("b", 2), ("a", 2)]


def test_lines_are_plain_json_for_other_tools(tmp_path):
    writer(tmp_path).emit(warn("ü\n"))
    line = (tmp_path / "1-driver.jsonl").read_text().splitlines()
    assert len(line) == 1
    assert json.loads(line[0])["message"] == "ü\n"
    assert os.stat(tmp_path / "1-driver.jsonl").st_mode & 0o777 == 0o644
