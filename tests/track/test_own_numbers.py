"""`track` in the hooks of a training config."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest

from llmops_kernel import track
from llmops_kernel.metrics.events import WarningEvent
from llmops_kernel.track import session
from llmops_kernel.train.own_numbers import OwnNumbers, own_numbers


@pytest.fixture
def warnings() -> list[WarningEvent]:
    return []


@pytest.fixture
def numbers(warnings: list[WarningEvent]) -> Iterator[OwnNumbers]:
    with own_numbers(is_main=True, warn=warnings.append) as taken:
        yield taken


def test_a_step_takes_the_numbers_since_the_one_before(
    numbers: OwnNumbers, warnings: list[WarningEvent]
) -> None:
    assert track.active()
    track.log(reward=1.0, entropy=0.5)
    track.log(reward=2.0)
    assert numbers.take() == {"reward": 2.0, "entropy": 0.5}
    assert numbers.take() == {}
    assert warnings == []


def test_the_loops_own_numbers_and_what_is_no_number_are_left_out_and_said_once(
    numbers: OwnNumbers, warnings: list[WarningEvent]
) -> None:
    for _ in range(3):
        track.log(loss=1.0, mfu=2.0, reward="high", kept=3.0)  # type: ignore[arg-type]
    assert numbers.take() == {"kept": 3.0}
    assert len(warnings) == 3
    assert any("track.log cannot set loss in a hook" in w.message for w in warnings)


def test_names_without_end_are_bounded(numbers: OwnNumbers, warnings: list[WarningEvent]) -> None:
    for step in range(200):
        track.log(**{f"reward_{step}": 1.0})
    assert len(numbers.take()) == 50
    assert ["50 names" in warning.message for warning in warnings] == [True]


def test_a_number_may_be_nan(numbers: OwnNumbers) -> None:
    track.log(reward=math.nan)
    assert math.isnan(numbers.take()["reward"])


def test_other_ranks_report_nothing(warnings: list[WarningEvent]) -> None:
    with own_numbers(is_main=False, warn=warnings.append) as numbers:
        track.log(reward=1.0, loss=1.0)
        track.step(loss=1.0)
        assert numbers.take() == {}
    assert warnings == []


def test_what_the_loop_does_itself_has_no_effect_and_is_said(
    numbers: OwnNumbers, warnings: list[WarningEvent]
) -> None:
    track.start(total_steps=3)
    track.step(loss=1.0)
    track.step(loss=1.0)
    track.evaluation({"accuracy": 1.0})
    track.checkpoint("somewhere")
    assert track.resume_checkpoint() is None
    assert track.should_stop(step=1) is False
    assert [w.message.split()[0] for w in warnings] == [
        "track.start",
        "track.step",
        "track.evaluation",
        "track.checkpoint",
    ]


def test_the_next_run_of_a_warm_process_has_no_tracker_of_this_one(
    warnings: list[WarningEvent],
) -> None:
    with own_numbers(is_main=True, warn=warnings.append) as numbers:
        assert session.tracker() is numbers
    assert session.tracker() is None
