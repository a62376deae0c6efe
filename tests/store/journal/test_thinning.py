"""Fewer steps for the same curves: extremes, ends, NaN and restarts stay."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmops_kernel.metrics.events import StepEvent
from llmops_kernel.store.journal.history import TAIL, stride_for, thin
from llmops_kernel.store.journal.training_view import MIN_ROWS, TrainingView
from tests.store.events import end, evaluation, restart, start, step, steps

NUMBERS = st.one_of(
    st.none(), st.sampled_from([math.nan, math.inf]), st.floats(-1e9, 1e9, allow_nan=False)
)
LOSSES = st.lists(NUMBERS, min_size=1, max_size=40)


def made(losses: list[float | None]) -> list[StepEvent]:
    """Steps with these losses, before a tail that is not thinned."""
    values = [0.5, *losses, *[0.5] * TAIL]
    return [
        step(number, loss=value, grad_norm=value, values={"mine": 2.0 * number})
        for number, value in enumerate(values, start=1)
    ]


def finite(events: list[StepEvent], name: str) -> list[float]:
    found = (getattr(event, name) for event in events)
    return [value for value in found if value is not None and math.isfinite(value)]


@given(LOSSES, st.sampled_from([2, 4, 16]), st.integers(1, 40))
def test_extremes_ends_and_nan_stay(losses, stride, edge):
    events = made(losses)
    kept = thin(events, stride=stride, edges=[edge])
    assert kept[0] == events[0]
    assert kept[-TAIL:] == events[-TAIL:]
    numbers = [event.step for event in kept]
    assert numbers == sorted(set(numbers))
    assert set(numbers) <= {event.step for event in events}
    for name in ("loss", "grad_norm"):
        before, after = finite(events, name), finite(kept, name)
        assert (min(before), max(before)) == (min(after), max(after))
    assert any(math.isnan(event.loss or 0) or math.isinf(event.loss or 0) for event in kept) == any(
        loss is not None and not math.isfinite(loss) for loss in losses
    )
    assert {event.values["mine"] for event in kept} >= {2.0, 2.0 * len(events)}
    # At most two of each stretch and one that is not a number; an edge makes one stretch more.
    assert len(kept) <= 1 + TAIL + 3 * (len(losses) // stride + 3)


@given(LOSSES)
def test_thinned_again_it_is_as_if_thinned_once(losses):
    values = [loss for loss in losses if loss is None or math.isfinite(loss)]
    events = made(values)
    again = thin(thin(events, stride=4), stride=16)
    once = thin(events, stride=16)
    assert [(one.step, one.loss, one.values) for one in again] == [
        (one.step, one.loss, one.values) for one in once
    ]


def test_extremes_come_in_the_order_in_which_they_came():
    events = made([5.0, 9.0, 1.0, 5.0, 5.0, 1.0, 9.0, 5.0])
    kept = thin(events, stride=4, edges=[6])
    by_step = {event.step: event.loss for event in kept[1:-TAIL]}
    assert by_step == {2: 9.0, 4: 1.0, 5: 5.0, 6: 1.0, 8: 9.0, 9: 5.0}


def test_numbers_that_only_some_steps_have_stay():
    events = made([1.0] * 8)
    events[3] = events[3].model_copy(update={"values": {"rare": 7.0}})
    kept = thin(events, stride=16)
    assert {name for event in kept for name in event.values or {}} == {"mine", "rare"}
    assert {event.values["rare"] for event in kept if "rare" in (event.values or {})} == {7.0}


@pytest.mark.parametrize(
    ("spans", "max_rows", "stride"),
    [([(1, 1000)], 1000, 2), ([(1, 4000)], 1000, 8), ([(1, 3000), (2001, 5000)], 1000, 16)],
)
def test_a_stride_is_a_power_of_two(spans, max_rows, stride):
    assert stride_for(spans, max_rows=max_rows) == stride


CELLS = 30_000


def thinned(events) -> tuple[TrainingView, TrainingView]:
    """Two views of the same events: one with every step, one thinned whenever it grew."""
    whole, view = TrainingView(events), TrainingView()
    for first in range(0, len(events), 400):
        view.apply(events[first : first + 400])
        view.thin(max_cells=CELLS)
    return whole, view


def test_a_thinned_view_says_the_same_in_fewer_rows():
    losses = {4990: math.nan, 4991: math.nan, 1234: 77.0, 2345: -5.0}
    events = [
        start(total=6000, seq=1),
        *(
            step(n, seq=n + 1, loss=losses.get(n, 1 / n), peak_memory_bytes=n % 777)
            for n in range(1, 5001)
        ),
        evaluation(2500, stream="1-worker-1", seq=9001, time_s=2600.0, eval_loss=0.5),
    ]
    events[4992:] = [*(step(n, seq=n + 1, loss=math.nan) for n in range(4992, 5001)), events[-1]]
    whole, view = thinned(events)
    assert len(view.steps) <= CELLS // 17
    assert view.stride > 1 == whole.stride
    mine, theirs = view.summary(), whole.summary()
    assert mine == theirs
    assert (view.nan_since, whole.nan_since) == (4990, 4990)
    assert {77.0, -5.0} <= {event.loss for event in view.steps}
    assert view.apply(events) == [], "what was left out is known"


def test_a_restart_after_a_thinning_removes_what_was_done_again():
    first = [start(total=6000, seq=1), *steps(1, 4000)]
    again = [
        restart(3500, time_s=4200.0, seq=50),
        *(
            step(n, stream="1-worker-2", seq=n, time_s=5000.0 + n, loss=3.0)
            for n in range(3501, 4501)
        ),
        end("SUCCEEDED", time_s=99999.0),
    ]
    whole, view = thinned([*first, *again])
    assert view.summary() == whole.summary()
    redone = [event for event in view.steps if event.step > 3500]
    assert {event.stream for event in redone} == {"1-worker-2"}
    assert max(event.step for event in view.steps if event.stream == "1-worker-1") <= 3500


def test_few_steps_are_never_thinned():
    view = TrainingView(steps(1, MIN_ROWS))
    assert not view.thin(max_cells=1)
    assert (len(view.steps), view.stride) == (MIN_ROWS, 1)
