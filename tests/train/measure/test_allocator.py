"""The replay of PyTorch's caching allocator: rounding, pools, reuse, and that nothing is lost."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmops_kernel.train.measure.traced_step import Event, replay

MIB = 2**20


@pytest.mark.parametrize(
    ("events", "allocated", "reserved"),
    [
        ([], 0, 0),
        ([("a", 1)], 512, 2 * MIB),
        ([("a", 513)], 1024, 2 * MIB),
        ([("a", MIB)], MIB, 2 * MIB),
        ([("a", MIB + 1)], MIB + 512, 20 * MIB),
        ([("a", 10 * MIB)], 10 * MIB, 10 * MIB),
        # A remainder of 1 MiB is not worth a block.
        ([("a", 11 * MIB)], 12 * MIB, 12 * MIB),
        # What was freed is taken again; blocks of two pools are not mixed.
        ([("a", 30 * MIB), ("a", 0), ("b", 30 * MIB)], 30 * MIB, 30 * MIB),
        ([("a", 30 * MIB), ("a", 0), ("b", 1)], 30 * MIB, 32 * MIB),
        # A hole between two blocks is too small for a larger one: fragmentation.
        (
            [("a", 8 * MIB), ("b", 8 * MIB), ("a", 0), ("c", 12 * MIB)],
            20 * MIB,
            32 * MIB,
        ),
        # Neighbours become one again.
        (
            [("a", 8 * MIB), ("b", 8 * MIB), ("a", 0), ("b", 0), ("c", 20 * MIB)],
            20 * MIB,
            20 * MIB,
        ),
    ],
)
def test_known_series(events: list[Event], allocated: int, reserved: int) -> None:
    found = replay(events)
    assert (found.allocated, found.reserved) == (allocated, reserved)


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(1, 50 * MIB)), max_size=120))
def test_what_is_reserved_holds_what_is_in_use(steps: list[tuple[int, int]]) -> None:
    live: set[int] = set()
    events: list[Event] = []
    in_use, most = 0, 0
    sizes: dict[int, int] = {}
    for name, size in steps:
        if name in live:
            live.remove(name)
            events.append((name, 0))
            in_use -= sizes[name]
        else:
            live.add(name)
            events.append((name, size))
            sizes[name] = size
            in_use += size
        most = max(most, in_use)
    found = replay(events)
    assert most <= found.allocated <= found.reserved or not steps
    # The same again finds everything free: nothing more is reserved.
    again = [*events, *((name, 0) for name in live)]
    assert replay([*again, *again]).reserved == replay(again).reserved
