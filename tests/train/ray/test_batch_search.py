"""Which micro batches are tried, and when the answer of an earlier run is taken."""

from __future__ import annotations

import math
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from llmops_kernel.config.less_memory import divisors
from llmops_kernel.train.probe import Sizes
from llmops_kernel.train.ray.batch_search import Climb, largest_fitting


@given(st.integers(1, 5000), st.integers(0, 6000), st.none() | st.integers(0, 6000))
def test_the_largest_that_fits_is_found_in_few_groups(
    rows: int, limit: int, planned: int | None
) -> None:
    sizes = divisors(rows)
    assert sizes == [size for size in range(1, rows + 1) if not rows % size]
    groups: list[list[int]] = []

    def climb(left: Sequence[int], begin: int | None) -> Climb:
        tried = Sizes(left, begin, rows).chosen(planned)
        groups.append(tried)
        return Climb(tried[0], max((size for size in tried if size <= limit), default=0))

    answer = largest_fitting(sizes, climb)
    assert answer == max((size for size in sizes if size <= limit), default=0)
    assert len(groups) <= math.ceil(math.log2(len(sizes))) + 2
    begins = [group[0] for group in groups]
    assert begins == sorted(begins, reverse=True)
    if planned is not None:
        assert begins[0] == max((size for size in sizes if size <= planned), default=1)


def test_a_group_without_memory_for_one_row_ends_the_search() -> None:
    groups: list[Sequence[int]] = []

    def climb(left: Sequence[int], begin: int | None) -> Climb:
        groups.append(left)
        return Climb(left[0], None)

    assert largest_fitting([1, 2, 4], climb) == 0
    assert len(groups) == 1
