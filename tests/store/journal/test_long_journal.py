"""Long journals are read in parts, and the next reader goes on where the last one stopped."""

from __future__ import annotations

from pathlib import Path

import pytest

from llmops_kernel.metrics.events import AnyEvent
from llmops_kernel.store.journal.journal import FolderTail
from llmops_kernel.store.journal.long_journal import LongJournal, forget
from llmops_kernel.store.journal.seen import SeenNumbers
from llmops_kernel.store.journal.training_view import TrainingView
from tests.store.events import end, evaluation, restart, start, step, steps

RUN_ID = "long-1"
KEEP_BYTES = 10_000


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LLMOPS_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "journal"
    folder.mkdir()
    return folder


def append(folder: Path, *events: AnyEvent) -> None:
    for event in events:
        with (folder / f"{event.stream}.jsonl").open("a") as file:
            file.write(f"{event.model_dump_json()}\n")


def reader(folder: Path, *, part_bytes: int = 5_000) -> tuple[TrainingView, LongJournal]:
    view = TrainingView()
    long = LongJournal(
        folder,
        view,
        run_id=RUN_ID,
        max_cells=20_000,
        long_cells=20_000,
        part_bytes=part_bytes,
        keep_bytes=KEEP_BYTES,
    )
    return view, long


def written(folder: Path) -> list[AnyEvent]:
    events = [
        start(total=2500, seq=1),
        *steps(1, 2000),
        evaluation(500, stream="1-driver", seq=1, time_s=600.0, eval_loss=0.5),
        restart(1500, time_s=5000.0, seq=2),
        *(step(n, stream="1-worker-2", time_s=6000.0 + n, loss=2.0) for n in range(1501, 2101)),
    ]
    append(folder, *events)
    return events


@pytest.mark.parametrize("part_bytes", [100, 5_000, 10**9])
def test_parts_of_any_size_give_the_view_of_the_whole(folder: Path, part_bytes: int) -> None:
    whole = TrainingView(written(folder))
    view, long = reader(folder, part_bytes=part_bytes)
    assert long.read()
    assert view.summary() == whole.summary()
    assert view.stride > 1
    assert long.read() == []


def test_the_next_reader_goes_on_where_the_last_one_stopped(folder: Path) -> None:
    events = written(folder)
    _, long = reader(folder)
    long.read()
    long.keep()
    for path in folder.iterdir():  # All but the lines that identify it are not read again.
        data = path.read_bytes()
        path.write_bytes(b"x" * (len(data) - 300) + data[-300:])
    more = [step(2101, stream="1-worker-2", time_s=9000.0), end("SUCCEEDED", time_s=9999.0)]
    append(folder, *more)
    view, long = reader(folder)
    assert long.read() == more
    assert view.summary() == TrainingView([*events, *more]).summary()
    assert view.stride > 1
    assert view.apply(events) == []


@pytest.mark.parametrize("spoiled", ["journal", "kept", "gone", "forgotten"])
def test_what_does_not_belong_to_the_journal_is_not_used(
    folder: Path, tmp_path: Path, spoiled: str
) -> None:
    written(folder)
    _, long = reader(folder)
    long.read()
    long.keep()
    (kept,) = (tmp_path / "cache").rglob("*.jsonl")
    if spoiled == "journal":
        for path in folder.iterdir():
            path.unlink()
        append(folder, *steps(1, 2200, start_s=700.0))
    elif spoiled == "kept":
        kept.write_bytes(kept.read_bytes()[:50])
    elif spoiled == "gone":
        (folder / "1-driver.jsonl").unlink()
    else:
        forget(RUN_ID)
    view, long = reader(folder)
    long.read()
    assert view.summary() == TrainingView(FolderTail(folder).read()).summary()


def test_the_half_line_of_a_writer_waits_for_its_rest(folder: Path) -> None:
    lines = [f"{event.model_dump_json()}\n" for event in steps(1, 3)]
    path = folder / "1-worker-1.jsonl"
    path.write_text(lines[0] + lines[1][:40])
    view, long = reader(folder, part_bytes=10)
    assert [event.step for event in long.read()] == [1]
    path.write_text("".join(lines))
    long.read()
    assert [event.step for event in view.steps] == [1, 2, 3]


def test_a_short_journal_is_not_kept(folder: Path, tmp_path: Path) -> None:
    append(folder, *steps(1, 3))
    _, long = reader(folder)
    long.read()
    long.keep()
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [([1, 2, 3], (3, [])), ([3, 1], (1, [3])), ([3, 2, 1, 5], (3, [5])), ([7, 7], (0, [7]))],
)
def test_seen_numbers(numbers: list[int], expected: tuple[int, list[int]]) -> None:
    seen = SeenNumbers()
    first = {number: seen.add(number) for number in reversed(numbers)}
    assert all(first.values()) or len(first) < len(numbers)
    assert not any(seen.add(number) for number in numbers)
    assert seen.state() == expected
    assert not any(SeenNumbers(*seen.state()).add(number) for number in numbers)


def test_who_shows_no_rows_holds_few_until_the_journal_is_long(folder: Path) -> None:
    append(folder, start(total=2500, seq=1), *steps(1, 2000))
    size = sum(path.stat().st_size for path in folder.iterdir())
    counts = {}
    for keep_bytes in (size // 2, 2 * size):
        view = TrainingView()
        LongJournal(
            folder, view, run_id=RUN_ID, max_cells=100, part_bytes=5_000, keep_bytes=keep_bytes
        ).read()
        assert view.summary() == TrainingView(FolderTail(folder).read()).summary()
        counts[keep_bytes] = len(view.steps)
        forget(RUN_ID)
    long, short = counts[size // 2], counts[2 * size]
    assert short <= 300 < 1000 <= long
