"""Any bytes as a journal: read without an error, and what is whole is there."""

from __future__ import annotations

import json
from pathlib import Path

from hypothesis import strategies as st

from llmops_kernel.kinds.registry import kinds, new_view
from llmops_kernel.metrics.events import EndEvent, WarningEvent
from llmops_kernel.store.journal.journal import (
    Deduplicator,
    FolderTail,
    JournalWriter,
    numbered_lines,
    read_lines,
)
from llmops_kernel.store.record import RunRecord
from llmops_kernel.store.store import RunStore
from llmops_kernel.views import static_run
from llmops_kernel.views.snapshot import snapshot
from tests.fuzz.examples import examples, json_values, words
from tests.server.runs import make_run


def whole_lines(folder: Path) -> list[bytes]:
    store = RunStore(folder)
    root = make_run(store, "r-1", steps=6)
    writer = JournalWriter([root / "journal"], stream="1-driver", attempt=1)
    writer.emit(WarningEvent(message="careful"))
    writer.emit(EndEvent(state="FAILED", message="why", remedy="then"))
    writer.close()
    files = sorted((root / "journal").glob("*.jsonl"))
    return [line for file in files for line in file.read_bytes().splitlines(keepends=True)]


@st.composite
def journals(draw: st.DrawFn, lines: list[bytes]) -> bytes:
    """Lines of a real journal: cut, doubled, out of order, with other values and bytes."""
    found = b""
    for _ in range(draw(st.integers(1, 8))):
        line = draw(st.sampled_from(lines))
        how = draw(st.sampled_from(["whole", "cut", "bytes", "value", "foreign"]))
        if how == "cut":
            line = line[: draw(st.integers(0, len(line)))]
        elif how == "bytes":
            at = draw(st.integers(0, len(line)))
            line = line[:at] + draw(st.binary(max_size=4)) + line[at:]
        elif how == "value":
            fields = json.loads(line)
            fields[draw(st.sampled_from(sorted(fields)))] = draw(json_values())
            line = json.dumps(fields).encode() + b"\n"
        elif how == "foreign":
            line = draw(words()).encode(errors="replace") + b"\n"
        found += line
    return found


def test_any_journal_is_read(tmp_path: Path) -> None:
    lines = whole_lines(tmp_path / "home")
    record = RunRecord(run_id="r-1", name="toy", created_s=1.0, cluster="local", config={})
    folder = tmp_path / "journal"
    folder.mkdir()
    for data in examples(journals(lines), 500):
        (folder / "1-worker-1.jsonl").write_bytes(data)
        events = FolderTail(folder).read()
        assert len(events) <= data.count(b"\n")
        numbered = [seq for seq, _ in numbered_lines(data[: data.rfind(b"\n") + 1])]
        assert {event.seq for event in events} <= set(numbered), data
        once = Deduplicator()
        assert len(once.new(events + events)) == len({(e.stream, e.seq) for e in events})
        for kind in kinds():
            view = new_view(kind.name, events)
            try:
                state = snapshot(view, record, now_s=10.0)
                json.dumps(state.model_dump(mode="json"), allow_nan=False)
                static_run.text(view, record)
            except Exception as error:
                raise AssertionError(f"{error!r} for {data!r} as {kind.name}") from error


def test_a_broken_line_hides_no_other(tmp_path: Path) -> None:
    lines = whole_lines(tmp_path)
    wanted = [event.seq for event in read_lines(b"".join(lines))]
    for junk in examples(
        st.binary(max_size=40) | words().map(lambda w: w.encode("utf-8", "replace")), 100
    ):
        if b"{" in junk:
            continue
        data = (junk.replace(b"\n", b"") + b"\n").join([b"", *lines])
        assert [event.seq for event in read_lines(data)] == wanted, junk
