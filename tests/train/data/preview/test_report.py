"""The bins of the histogram of lengths."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmops_kernel.train.data.preview.report import length_bins


@given(st.lists(st.integers(0, 5000), min_size=1, max_size=60), st.integers(8, 3000))
def test_each_row_is_in_one_bin(lengths: list[int], max_length: int) -> None:
    bins = length_bins(sorted(lengths), max_length)
    for length in lengths:
        inside = [
            one
            for one in bins
            if max(one.above, -1) < length <= (one.up_to if one.up_to is not None else length)
        ]
        assert len(inside) == 1
    assert sum(one.rows for one in bins) == len(lengths)
    assert len(bins) <= 100
    assert all(a.up_to == b.above for a, b in itertools.pairwise(bins))


@given(st.lists(st.integers(0, 5000), min_size=1, max_size=60), st.integers(8, 3000))
def test_max_length_divides_no_bin(lengths: list[int], max_length: int) -> None:
    for one in length_bins(sorted(lengths), max_length):
        longer = one.up_to is None or one.up_to > max_length
        assert not (one.above < max_length and longer) or max(lengths) <= max_length


@pytest.mark.parametrize(
    ("lengths", "max_length", "edges"),
    [
        ([47, 82], 96, (46, 82)),
        ([5], 96, (4, 5)),
        ([100, 500], 100, (80, 400)),
        ([30, 33], 32, (29, 34)),
    ],
)
def test_bins_begin_with_the_shortest_row(
    lengths: list[int], max_length: int, edges: tuple[int, int]
) -> None:
    bins = length_bins(lengths, max_length)
    last = bins[-1].up_to if bins[-1].up_to is not None else bins[-1].above
    assert (bins[0].above, last) == edges
