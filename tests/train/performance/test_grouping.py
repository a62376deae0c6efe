"""Rows of like length in one micro batch: the same rows in each optimizer step."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from llmops_kernel.train.data.examples import Example
from llmops_kernel.train.performance import Grouping, by_length

lengths = st.lists(st.lists(st.integers(1, 40), min_size=1, max_size=4), max_size=5)


def batches_of(shape: list[list[int]]) -> list[list[Example]]:
    number = iter(range(1000))
    return [[Example([next(number)] * size, [0] * size) for size in sizes] for sizes in shape]


def padded(batches: list[list[Example]]) -> int:
    return sum(len(rows) * max(len(row.input_ids) for row in rows) for rows in batches)


@given(lengths)
def test_each_step_keeps_its_rows_and_its_micro_batches(shape: list[list[int]]) -> None:
    before = batches_of(shape)
    after = by_length(before)
    assert [len(rows) for rows in after] == [len(rows) for rows in before]
    assert sorted(id(row) for rows in after for row in rows) == sorted(
        id(row) for rows in before for row in rows
    )
    flat = [len(row.input_ids) for rows in after for row in rows]
    assert flat == sorted(flat, reverse=True)


@given(st.lists(st.lists(st.integers(1, 40), min_size=4, max_size=4), min_size=1, max_size=5))
def test_micro_batches_of_one_size_never_need_more_padding(shape: list[list[int]]) -> None:
    before = batches_of(shape)
    assert padded(by_length(before)) <= padded(before)


def test_a_step_reads_no_more_than_its_own_micro_batches() -> None:
    source = iter(batches_of([[3, 9], [8, 2], [7, 7]]))
    grouping = Grouping(lambda rows: {"lengths": [len(row.input_ids) for row in rows]})
    step = list(grouping.batches(source, 2))
    assert [batch["lengths"] for batch in step] == [[9, 8], [3, 2]]
    assert [len(row.input_ids) for row in next(source)] == [7, 7]
    assert list(grouping.batches(source, 2)) == []
