"""The order of streamed rows: each row on one worker, once an epoch, the same in each attempt."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmops_kernel.train.data.stream.order import (
    StreamPart,
    Window,
    order,
    row_order,
    windows,
)


def parquet(*rows: int) -> list[StreamPart]:
    """Parts that state their rows, of 100 bytes each."""
    return [StreamPart(n, 0, n, 100 * count, count) for n, count in enumerate(rows)]


def jsonl(*sizes: int) -> list[StreamPart]:
    return [StreamPart(n, 0, 0, size) for n, size in enumerate(sizes)]


def mixed(*sizes: int) -> list[StreamPart]:
    """Every second part does not know its rows."""
    return [
        StreamPart(n, n % 2, 0, 10 * size, None if n % 2 else size) for n, size in enumerate(sizes)
    ]


def dealt_rows(parts: list[StreamPart], shares: list[list[object]]) -> Counter[tuple[int, int]]:
    """Count how often each row is dealt; a part whose rows are not known is one row."""
    found: Counter[tuple[int, int]] = Counter()
    for share in shares:
        for piece in share:
            end = piece.end if piece.end is not None else 1  # type: ignore[attr-defined]
            found.update((piece.part, row) for row in range(piece.begin, end))  # type: ignore[attr-defined]
    return found


@pytest.mark.parametrize("make", [parquet, jsonl, mixed])
@given(
    sizes=st.lists(st.integers(0, 40), max_size=30),
    world=st.integers(1, 9),
    seed=st.integers(0, 5),
    epoch=st.integers(0, 3),
    shuffle=st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_each_row_is_dealt_to_one_worker_once(make, sizes, world, seed, epoch, shuffle) -> None:
    parts = make(*sizes)
    shares = order(parts, seed=seed, epoch=epoch, world=world, shuffle=shuffle)
    assert len(shares) == world
    expected = Counter(
        (part.index, row)
        for part in parts
        for row in range(1 if part.num_rows is None else part.num_rows)
        if part.num_bytes
    )
    assert dealt_rows(parts, shares) == expected
    again = order(parts, seed=seed, epoch=epoch, world=world, shuffle=shuffle)
    assert again == shares


@given(rows=st.lists(st.integers(0, 50), min_size=1, max_size=20), world=st.integers(1, 8))
@settings(max_examples=60, deadline=None)
def test_parts_that_state_their_rows_are_dealt_evenly(rows, world) -> None:
    parts = parquet(*rows)
    shares = order(parts, seed=1, epoch=0, world=world)
    sizes = [sum((piece.end or 0) - piece.begin for piece in share) for share in shares]
    assert max(sizes) - min(sizes) <= 1


def test_byte_ranges_are_dealt_whole_and_nearly_evenly() -> None:
    parts = jsonl(*[1000] * 256)
    shares = order(parts, seed=3, epoch=0, world=8)
    assert {len(share) for share in shares} == {32}
    assert all(piece.end is None for share in shares for piece in share)


def test_epochs_and_seeds_differ_and_no_shuffle_keeps_the_order_of_the_files() -> None:
    parts = parquet(*[10] * 40)
    first = order(parts, seed=1, epoch=0, world=2)
    assert order(parts, seed=1, epoch=1, world=2) != first
    assert order(parts, seed=2, epoch=0, world=2) != first
    plain = order(parts, seed=1, epoch=0, world=2, shuffle=False)
    assert [piece.part for share in plain for piece in share] == list(range(40))


def test_windows_hold_so_many_bytes_or_one_piece() -> None:
    parts = jsonl(10, 10, 100, 10, 10, 10)
    (share,) = order(parts, seed=0, epoch=0, world=1, shuffle=False)
    found = list(windows(share, parts, epoch=2, window_bytes=25))
    assert [[piece.part for piece in window.pieces] for window in found] == [
        [0, 1],
        [2],
        [3, 4],
        [5],
    ]
    assert [(window.epoch, window.number) for window in found] == [(2, 0), (2, 1), (2, 2), (2, 3)]


def test_rows_of_a_window_are_permuted_by_worker_epoch_and_window() -> None:
    window = Window(0, 0, ())
    found = list(row_order(window, 100, seed=1, rank=0, shuffle=True))
    assert sorted(found) == list(range(100)) != found
    assert found == list(row_order(window, 100, seed=1, rank=0, shuffle=True))
    assert found != list(row_order(window, 100, seed=1, rank=1, shuffle=True))
    assert found != list(row_order(Window(1, 0, ()), 100, seed=1, rank=0, shuffle=True))
    assert found != list(row_order(Window(0, 1, ()), 100, seed=1, rank=0, shuffle=True))
    assert list(row_order(window, 5, seed=1, rank=0, shuffle=False)) == [0, 1, 2, 3, 4]


def test_the_order_is_that_of_earlier_versions() -> None:
    """A run that resumes after an update must go on with the rows that it has not seen."""
    shares = order(parquet(3, 4, 5, 6), seed=42, epoch=1, world=2)
    assert [[(p.part, p.begin, p.end) for p in share] for share in shares] == [
        [(0, 0, 3), (2, 0, 5), (3, 0, 1)],
        [(3, 1, 6), (1, 0, 4)],
    ]
    assert list(row_order(Window(1, 0, ()), 6, seed=42, rank=1, shuffle=True)) == [5, 1, 3, 0, 2, 4]
