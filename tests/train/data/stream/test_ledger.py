"""The ledger of streamed rows: what it says was trained on is what was handed out, at any step."""

from __future__ import annotations

from collections import Counter
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmops_kernel.metrics.events import AnyEvent, RowsEvent, StartEvent, parse_event
from llmops_kernel.train.data.stream.ledger import (
    lineage,
    numbers_of,
    ranges,
    rank_rows,
    trained_rows,
)
from llmops_kernel.train.data.stream.plan import StreamPlan, plan_stream
from llmops_kernel.train.data.stream.reader import read
from llmops_kernel.train.data.stream.walk import Walk
from tests.train.data.stream.files import rows, write_jsonl, write_parquet


@pytest.fixture
def plan(tmp_path: Path) -> StreamPlan:
    write_jsonl(tmp_path / "data" / "a.jsonl", rows(150), blank_every=4)
    write_parquet(tmp_path / "data" / "b.parquet", rows(150, 150), group=40)
    return plan_stream("data", roots=[tmp_path])


@given(st.sets(st.integers(0, 200)))
@settings(deadline=None)
def test_ranges_are_read_back(numbers: set[int]) -> None:
    assert numbers_of(ranges(numbers)) == sorted(numbers)


def test_ranges_are_short() -> None:
    assert ranges([*range(2500), 7000]) == "0-2499,7000"


def sizes(plan: StreamPlan) -> list[int]:
    return [len(read(plan.files, part)) for part in plan.parts]


def walked(plan: StreamPlan, rank: int, count: int) -> tuple[Walk, list[tuple[int, int, int]]]:
    """Take rows, and one more, as the thread does that reads ahead."""
    walk = Walk(plan, rank, 2, seed=3, num_epochs=2)
    found = [(one.part, one.number, rank) for one in islice(walk.rows(), count + 1)]
    return walk, found[:count]


def event(step: int, *ranks: Any, stream: str = "1-worker-1") -> RowsEvent:
    return RowsEvent(step=step, ranks=ranks, stream=stream)


@pytest.mark.parametrize("cuts", [[300], [1, 2, 150, 299, 300], [37, 74, 111], [140]])
def test_the_ledger_has_the_rows_that_were_handed_out(plan: StreamPlan, cuts: list[int]) -> None:
    events, expected = [], []
    for begin, end in zip([0, *cuts], cuts, strict=False):
        ledgers = []
        expected = []
        for rank in range(2):
            walk, found = walked(plan, rank, end)
            ledgers.append(rank_rows(walk, begin=begin, end=end))
            expected += found
        line = event(end, *ledgers).model_dump_json()
        read_back = parse_event(line)
        assert isinstance(read_back, RowsEvent)
        events.append(read_back)
    found_rows = trained_rows(events, sizes(plan), seed=3)
    assert Counter(row for epoch in found_rows.values() for row in epoch) == Counter(expected)
    total = sum(rank.num_rows for one in events for rank in one.ranks)
    assert total == sum(map(len, found_rows.values()))


def test_a_restart_removes_what_came_after_its_checkpoint() -> None:
    def start(first_step: int, stream: str) -> AnyEvent:
        more = {"num_workers": 1, "global_batch_size": 1, "device": "", "dtype": ""}
        return StartEvent(total_steps=9, first_step=first_step, stream=stream, **more)

    journal = [
        start(1, "1-worker-1"),
        event(3),
        event(6),
        event(8),
        start(1, "1-worker-1"),  # The total has changed: no restart.
        start(7, "1-worker-2"),
        event(9, stream="1-worker-2"),
    ]
    assert [one.step for one in lineage(journal)] == [3, 6, 9]
