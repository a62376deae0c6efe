"""Rows of a weighted source, streamed: a multiset per epoch, the same on any number of workers."""

from __future__ import annotations

from collections import Counter
from math import ceil, floor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmops_kernel.train.data.stream.order import Piece, drawn, order
from tests.train.data.stream.test_order import jsonl, mixed, parquet

WEIGHTS = st.one_of(
    st.integers(1, 4).map(float), st.sampled_from([0.1, 0.25, 0.3, 0.5, 0.7, 1.5, 2.25])
)


def rows_of(pieces: list[Piece]) -> Counter[tuple[int, int]]:
    """Count each row; a part whose rows are not known is one row."""
    found: Counter[tuple[int, int]] = Counter()
    for piece in pieces:
        end = 1 if piece.end is None else piece.end
        found.update((piece.part, row) for row in range(piece.begin, end))
    return found


@pytest.mark.parametrize("make", [parquet, jsonl, mixed])
@given(
    sizes=st.lists(st.integers(1, 30), min_size=1, max_size=12),
    weight=WEIGHTS,
    seed=st.integers(0, 3),
    worlds=st.tuples(st.integers(1, 5), st.integers(1, 5)),
    shuffle=st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_each_row_is_dealt_weight_times(make, sizes, weight, seed, worlds, shuffle) -> None:
    parts = make(*sizes)
    total: Counter[tuple[int, int]] = Counter()
    for epoch in range(6):
        each = []
        for world in worlds:
            shares = order(
                parts, seed=seed, epoch=epoch, world=world, shuffle=shuffle, weight=weight
            )
            assert len(shares) == world
            each.append(rows_of([piece for share in shares for piece in share]))
        assert each[0] == each[1]  # Whatever the number of workers.
        total += each[0]
        counts = {each[0][row] for row in every(parts)}
        assert counts <= {floor(weight), ceil(weight)}
        if make is parquet:  # All rows are known: to the row.
            wanted = weight * sum(sizes)
            assert abs(sum(each[0].values()) - wanted) < 1
    # After several epochs no row is ahead of another by more than one.
    seen = [total[row] for row in every(parts)]
    assert set(total) <= set(every(parts))
    assert max(seen) - min(seen) <= 1
    assert abs(max(seen) - 6 * weight) <= 1


def every(parts) -> list[tuple[int, int]]:
    return [
        (part.index, row)
        for part in parts
        for row in range(1 if part.num_rows is None else part.num_rows)
    ]


def test_a_tenth_is_everything_after_ten_epochs() -> None:
    parts = parquet(*[7] * 30)
    total: Counter[tuple[int, int]] = Counter()
    for epoch in range(10):
        total += rows_of(drawn(parts, weight=0.1, seed=1, epoch=epoch, shuffle=True))
    assert set(total.values()) == {1}
    assert len(total) == 210


def test_a_part_of_a_large_source_reads_a_part_of_its_files() -> None:
    pieces = drawn(parquet(*[100] * 50), weight=0.1, seed=1, epoch=3, shuffle=True)
    assert len({piece.part for piece in pieces}) <= 6


def test_the_order_is_that_of_earlier_versions() -> None:
    """A run that resumes after an update must go on with the rows that it has not seen."""
    shares = order(parquet(3, 4, 5, 6), seed=42, epoch=1, world=2, weight=1.5)
    assert [[(p.part, p.begin, p.end) for p in share] for share in shares] == [
        [(1, 1, 4), (2, 0, 5), (3, 0, 5)],
        [(3, 5, 6), (0, 0, 3), (3, 0, 6), (1, 0, 4)],
    ]
