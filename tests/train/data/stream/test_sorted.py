"""Files that are sorted by class: each window of shuffled rows is of all of them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from statistics import mean

import pytest

from llmops_kernel.tables.files import TableFile
from llmops_kernel.train.data.identity import FILE, division_of
from llmops_kernel.train.data.sources import Source
from llmops_kernel.train.data.stream.order import order, windows
from llmops_kernel.train.data.stream.plan import DIVISION, parts_of, plan_stream
from llmops_kernel.train.data.stream.walk import Walk

CLASSES = 10
GIB = 1 << 30


def classes_by_size(total: int, *, division: int, world: int = 2) -> Iterator[int]:
    """Classes of each window but a worker's last one, by the plan of a file that is never read."""
    file = TableFile("rows.jsonl", "jsonl", total, "1", "rows.jsonl")
    parts = list(parts_of([file], {}, division=division))
    for pieces in order(parts, seed=7, epoch=0, world=world):
        for window in list(windows(pieces, parts, epoch=0))[:-1]:
            yield len({parts[one.part].offset * CLASSES // total for one in window.pieces})


@pytest.mark.parametrize(
    ("size", "least"), [(GIB // 4, 9.9), (2 * GIB, 9.9), (20 * GIB, 9.9), (200 * GIB, 9.75)]
)
def test_a_window_is_of_all_classes_of_a_sorted_file_of_any_size(size: int, least: float) -> None:
    assert mean(classes_by_size(size, division=DIVISION)) > least


def test_with_the_parts_of_earlier_versions_a_window_was_of_half_of_them() -> None:
    assert mean(classes_by_size(2 * GIB, division=1)) == pytest.approx(5.7, abs=0.3)


def written(path: Path) -> int:
    """2 MiB of rows in the order of their classes."""
    rows = [{"text": "x" * (40 + n % 100), "class": n // 1600} for n in range(16_000)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path.stat().st_size


def test_the_rows_that_are_read_are_mixed_and_each_is_read_once(tmp_path: Path) -> None:
    size = written(tmp_path / "rows.jsonl")
    plan = plan_stream(Source("rows.jsonl", [tmp_path]))
    # As many parts to a window as in a large file: 64.
    window_bytes = 64 * plan.parts[0].num_bytes
    assert size / window_bytes == pytest.approx(4, abs=0.5)
    walk = Walk(plan, 0, 1, seed=3, num_epochs=1, window_bytes=window_bytes)
    found = [row.decode()["class"] for row in walk.rows()]
    assert sorted(found) == sorted(n // 1600 for n in range(16_000))
    hundreds = [len(set(found[at : at + 100])) for at in range(0, len(found) - 100, 100)]
    assert min(hundreds) >= 9


@pytest.mark.parametrize(
    ("content", "division"),
    [(None, 1), ("{broken", 1), ('{"files": {}}', 1), ('{"files": {}, "division": 2}', 2)],
)
def test_a_checkpoint_keeps_the_division_that_it_was_written_with(
    content: str | None, division: int, tmp_path: Path
) -> None:
    if content is not None:
        (tmp_path / FILE).write_text(content)
    assert division_of(tmp_path) == division
    assert division_of(None) is None


def test_plans_of_unlike_divisions_are_not_taken_for_one_another(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"text": "a"}\n')
    plans = [plan_stream(Source("rows.jsonl", [tmp_path]), division=one) for one in (1, 2)]
    assert plans[0].fingerprint != plans[1].fingerprint
    assert [plan.division for plan in plans] == [1, 2]
