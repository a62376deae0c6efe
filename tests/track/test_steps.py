"""How reports of steps become numbers: steps, tokens, time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmops_kernel.track.tracker import StepCounter, all_tokens


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.mark.parametrize(
    ("num_workers", "said", "expected"),
    [
        (1, {"tokens": 512}, 512),
        (1, {"tokens_per_worker": 512}, 512),
        (1, {}, None),
        (4, {"tokens_per_worker": 512}, 2048),
        (4, {"total_tokens": 2000}, 2000),
        # One worker's tokens do not say what the others did.
        (4, {"tokens": 512}, None),
        (4, {"tokens": 512, "total_tokens": 1999}, 1999),
    ],
)
def test_tokens_of_all_workers(
    num_workers: int, said: dict[str, int], expected: int | None
) -> None:
    assert all_tokens(num_workers=num_workers, **said) == expected


def test_the_first_step_has_no_time_unless_its_begin_is_known() -> None:
    clock = Clock()
    counter = StepCounter(clock=clock)
    first = counter.count(step=None, tokens=10)
    assert (first.step, first.time_s, first.tokens, first.tokens_per_second) == (1, None, 10, None)
    clock.now_s += 2
    second = counter.count(step=None, tokens=10)
    assert (second.step, second.time_s, second.tokens_per_second) == (2, 2.0, 5.0)


def test_a_mark_leaves_out_what_was_before_it() -> None:
    clock = Clock()
    counter = StepCounter(clock=clock)
    counter.mark()
    clock.now_s += 60  # An evaluation.
    counter.mark()
    clock.now_s += 1
    assert counter.count(step=None, tokens=None).time_s == 1.0


def test_a_report_of_ten_steps_is_their_mean() -> None:
    clock = Clock()
    counter = StepCounter(clock=clock)
    counter.mark()
    clock.now_s += 20
    counted = counter.count(step=10, tokens=1000, flops=5e9)
    assert (counted.step, counted.time_s, counted.tokens) == (10, 2.0, 100)
    assert counted.flops == 5e8
    assert counted.tokens_per_second == 50.0


def test_tokens_of_an_unknown_number_of_steps_are_unknown() -> None:
    counted = StepCounter(clock=Clock()).count(step=10, tokens=1000, flops=5e9)
    assert (counted.tokens, counted.flops) == (None, None)


def test_steps_go_on_after_those_of_a_checkpoint() -> None:
    counter = StepCounter(clock=Clock())
    counter.continue_after(40)
    assert [counter.count(step=None, tokens=None).step for _ in range(2)] == [41, 42]


@given(
    gaps=st.lists(st.integers(1, 20), min_size=1, max_size=30),
    pace_s=st.floats(0.01, 100),
    tokens=st.integers(1, 10**6),
)
def test_whatever_is_reported_the_rate_is_tokens_over_time(
    gaps: list[int], pace_s: float, tokens: int
) -> None:
    clock = Clock()
    counter = StepCounter(clock=clock)
    counter.mark()
    at = 0
    for gap in gaps:
        at += gap
        clock.now_s += gap * pace_s
        counted = counter.count(step=at, tokens=gap * tokens)
        assert counted.step == at
        assert counted.time_s == pytest.approx(pace_s, rel=1e-6)
        assert counted.tokens == tokens
        assert counted.tokens_per_second == pytest.approx(tokens / pace_s, rel=1e-6)
