"""Journals are read in parts, in bounded memory, and give the view of the whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from llmops_kernel.metrics.events import AnyEvent
from llmops_kernel.store.journal.journal import FolderTail, SeenNumbers
from llmops_kernel.store.journal.training_view import MIN_ROWS, TrainingView
from llmops_kernel.store.journal.view import read_thinned
from tests.store.events import evaluation, restart, start, step, steps

CELLS = 20_000


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "journal"
    folder.mkdir()
    return folder


def written(folder: Path) -> list[AnyEvent]:
    events = [
        start(total=2500, seq=1),
        *steps(1, 2000),
        evaluation(500, stream="1-driver", seq=1, time_s=600.0, eval_loss=0.5),
        restart(1500, time_s=5000.0, seq=2),
        *(step(n, stream="1-worker-2", time_s=6000.0 + n, loss=2.0) for n in range(1501, 2101)),
    ]
    for event in events:
        with (folder / f"{event.stream}.jsonl").open("a") as file:
            file.write(f"{event.model_dump_json()}\n")
    return events


@pytest.mark.parametrize("part_bytes", [100, 5_000, 10**9])
def test_parts_of_any_size_give_the_view_of_the_whole(folder: Path, part_bytes: int) -> None:
    whole = TrainingView(written(folder))
    view, tail = TrainingView(), FolderTail(folder)
    assert read_thinned(tail, view, max_cells=CELLS, part_bytes=part_bytes)
    assert view.summary() == whole.summary()
    assert view.stride > 1
    assert view.steps[-64:] == whole.steps[-64:]
    assert read_thinned(tail, view, max_cells=CELLS) == []


def test_few_cells_give_the_figures_of_all_steps(folder: Path) -> None:
    whole = TrainingView(written(folder))
    view = TrainingView()
    read_thinned(FolderTail(folder), view, max_cells=100, part_bytes=5_000)
    assert view.summary() == whole.summary()
    assert len(view.steps) <= MIN_ROWS


def test_events_that_came_on_another_way_are_read_once(folder: Path) -> None:
    events = written(folder)
    view, tail = TrainingView(), FolderTail(folder)
    read_thinned(tail, view, max_cells=CELLS, arrived=events[-5:])
    assert view.summary() == TrainingView(events).summary()
    assert read_thinned(tail, view, max_cells=CELLS, arrived=events[-5:]) == []


def test_the_half_line_of_a_writer_waits_for_its_rest(folder: Path) -> None:
    lines = [f"{event.model_dump_json()}\n" for event in steps(1, 3)]
    path = folder / "1-worker-1.jsonl"
    path.write_text(lines[0] + lines[1][:40])
    view, tail = TrainingView(), FolderTail(folder)
    read_thinned(tail, view, max_cells=CELLS, part_bytes=10)
    assert [event.step for event in view.steps] == [1]
    path.write_text("".join(lines))
    read_thinned(tail, view, max_cells=CELLS, part_bytes=10)
    assert [event.step for event in view.steps] == [1, 2, 3]


@pytest.mark.parametrize("numbers", [[1, 2, 3], [3, 1], [3, 2, 1, 5], [7, 8]])
def test_seen_numbers(numbers: list[int]) -> None:
    seen = SeenNumbers()
    assert all(seen.add(number) for number in numbers)
    assert not any(seen.add(number) for number in numbers)
