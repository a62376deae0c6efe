"""The figures of a run that has ended are of all its steps, whatever the last ten were like."""

from __future__ import annotations

import random

import pytest

from llmops_kernel.metrics.events import AnyEvent, StepEvent
from llmops_kernel.metrics.flops import REJECTED_PEAK
from llmops_kernel.store.journal.training_view import TrainingView
from llmops_kernel.views.figures import figures
from tests.store.events import end, restart, start, step

PEAK = 50e9
WORK = 2e6
"""FLOPs of a token."""


def slowing(first: int, last: int, *, peak: float = PEAK, **fields: object) -> list[StepEvent]:
    """Steps of unequal tokens and times: slow ones at first, as on a busy machine."""
    numbers = random.Random(f"{first}")
    made = []
    for n in range(first, last + 1):
        tokens, time_s = numbers.randrange(50, 200), 0.5 if n > last - 12 else 3.0
        work = tokens * WORK
        made.append(
            step(
                n,
                seq=n + 1,
                time_s=1000.0 + n,
                tokens=tokens,
                step_time_s=time_s,
                tokens_per_second=tokens / time_s,
                flops=work,
                mfu=work / time_s / peak,
                hfu=1.5 * work / time_s / peak,
                mfu_palm=None,
                **fields,
            )
        )
    return made


def totals(steps: list[StepEvent]) -> tuple[float, float]:
    """Tokens and seconds, without the first step."""
    return sum(one.tokens or 0 for one in steps[1:]), sum(one.step_time_s or 0 for one in steps[1:])


def test_a_run_that_has_ended_shows_totals_and_one_under_way_its_last_steps() -> None:
    steps = slowing(1, 60)
    live = TrainingView([start(peak_flops=PEAK), *steps])
    ended = TrainingView([start(peak_flops=PEAK), *steps, end("SUCCEEDED")])
    tokens, seconds = totals(steps)
    assert live.step_time_s == 0.5
    assert live.tokens_per_second > 2 * tokens / seconds
    assert ended.tokens_per_second == pytest.approx(tokens / seconds)
    assert ended.step_time_s == pytest.approx(seconds / 59)
    assert ended.mfu == pytest.approx(tokens * WORK / seconds / PEAK)
    assert ended.hfu == pytest.approx(1.5 * tokens * WORK / seconds / PEAK)
    assert ended.mfu_palm is None
    assert live.whole is None
    # MFU of a run is its tokens a second by what a token costs.
    assert ended.mfu == pytest.approx(ended.tokens_per_second * WORK / PEAK)


def test_the_hints_say_which_steps_and_which_time() -> None:
    steps = slowing(1, 60)
    hints = {one.key: one.hint for one in figures(TrainingView([start(), *steps]))}
    assert hints["step_time"] == "median of the last 10 steps"
    ended = {one.key: one.hint for one in figures(TrainingView([*steps, end("STOPPED")]))}
    words = "of 59 steps, without the first of each start, evaluations and saves"
    assert ended["step_time"] == f"mean {words}"
    assert ended["tokens_per_second"].endswith(f"without padding; totals {words}")


def test_a_retry_shows_its_last_steps_until_it_has_ended() -> None:
    steps = [start(), *slowing(1, 30), end("FAILED", time_s=2000.0)]
    again = [start(stream="2-worker-1", first_step=31), *slowing(31, 60, stream="2-worker-1")]
    assert TrainingView([*steps, *again]).step_time_s == 0.5
    done = TrainingView([*steps, *again, end("SUCCEEDED", stream="2-driver", time_s=3000.0)])
    assert done.whole is not None
    assert done.whole.steps == 58  # The first step of each attempt is left out.


def test_steps_that_a_restart_has_undone_are_not_counted() -> None:
    first = [start(), *slowing(1, 30), restart(20, time_s=1031.0, seq=2)]
    again = slowing(21, 40, stream="1-worker-2")
    again = [one.model_copy(update={"time_s": one.time_s + 100}) for one in again]
    view = TrainingView([*first, *again, end("SUCCEEDED", time_s=5000.0)])
    kept = slowing(1, 30)[:20]
    assert view.whole is not None
    assert view.whole.steps == 19 + 19
    seconds = sum(one.step_time_s for one in [*kept[1:], *again[1:]])
    assert view.step_time_s == pytest.approx(seconds / 38)


@pytest.mark.parametrize("raised", [PEAK, 1.32 * PEAK])
def test_all_utilizations_are_of_the_peak_known_at_the_end(raised: float) -> None:
    steps = slowing(1, 60)
    tokens, seconds = totals(steps)
    begin = start(peak_flops=PEAK, peak_source="measured: best of float32 matrix products")
    events = [begin, *steps, begin.model_copy(update={"peak_flops": raised, "seq": 99})]
    view = TrainingView([*events, end("SUCCEEDED", seq=2)])
    assert view.mfu == pytest.approx(tokens * WORK / seconds / raised)
    assert view.hfu == pytest.approx(1.5 * view.mfu)
    # The curve, too.
    assert [one.mfu for one in view.steps] == [
        pytest.approx(one.flops / one.step_time_s / raised) for one in steps
    ]
    # Another attempt may know a higher one of the same processor.
    again = start(stream="2-worker-1", first_step=61, peak_flops=2 * PEAK)
    more = slowing(61, 90, peak=2 * PEAK, stream="2-worker-1")
    both = TrainingView([*events, again, *more, end("SUCCEEDED", stream="2-driver")])
    tokens, seconds = (sum(pair) for pair in zip(totals(more), (tokens, seconds), strict=True))
    assert both.mfu == pytest.approx(tokens * WORK / seconds / (2 * PEAK))


def test_groups_on_unlike_devices_are_weighed_by_what_they_could_compute() -> None:
    slow, fast = slowing(1, 30), slowing(31, 60, peak=4 * PEAK, stream="2-worker-1")
    view = TrainingView(
        [
            start(peak_flops=PEAK, device="slow"),
            *slow,
            start(stream="2-worker-1", first_step=31, peak_flops=4 * PEAK, device="fast"),
            *fast,
            end("SUCCEEDED", stream="2-driver"),
        ]
    )
    (old, old_s), (new, new_s) = totals(slow), totals(fast)
    assert view.mfu == pytest.approx((old + new) * WORK / (old_s * PEAK + new_s * 4 * PEAK))


def test_a_peak_that_was_proved_wrong_gives_no_number() -> None:
    wrong = start(seq=99, peak_flops=None, peak_source=REJECTED_PEAK)
    view = TrainingView([start(peak_flops=PEAK), *slowing(1, 30), wrong, end("SUCCEEDED", seq=2)])
    assert view.mfu is view.hfu is None
    assert view.tokens_per_second is not None


def test_unknown_parts_are_left_out_of_both_sides_and_nothing_is_none() -> None:
    events: list[AnyEvent] = [step(1), step(2, tokens=None), step(3, tokens=30, step_time_s=0.2)]
    view = TrainingView([*events, end("SUCCEEDED")])
    assert view.tokens_per_second == pytest.approx(30 / 0.2)
    assert view.step_time_s == pytest.approx(0.15)
    only = TrainingView([step(1), end("SUCCEEDED")])
    assert (only.step_time_s, only.tokens_per_second, only.mfu) == (None, None, None)


def test_totals_are_the_same_when_a_view_keeps_few_steps() -> None:
    steps = slowing(1, 6_000)
    steps[100] = steps[100].model_copy(update={"loss": float("nan")})
    whole = TrainingView([start(peak_flops=PEAK), *steps, end("SUCCEEDED", seq=2)])
    thin = TrainingView([start(peak_flops=PEAK)])
    for begin in range(0, 6_000, 1_000):
        thin.apply(steps[begin : begin + 1_000])
        thin.thin(max_cells=6_000)
    thin.apply([end("SUCCEEDED", seq=2)])
    assert len(thin.steps) < 1_000
    for name in ("step_time_s", "tokens_per_second", "mfu", "hfu"):
        assert getattr(thin, name) == pytest.approx(getattr(whole, name))
    assert thin.whole is not None
    assert thin.whole.steps == 5_999


def test_a_step_that_stands_for_others_is_no_number_of_a_script() -> None:
    from llmops_kernel.track.tracker import Logged

    assert Logged().add({"stands_for": 1.0}) == []
