"""Stalls and slow ranks told from beats, by hand-made clocks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from llmops_kernel.driver.beats import Beat
from llmops_kernel.driver.radar import FEW_STEPS_S, MARGIN_S, SlowRank, SlowWatch, Stall, StallWatch


def beat(rank: int, *, step: int, step_s: float = 1.0, waits_s: float = 0.0, **more: float) -> Beat:
    """A rank whose steps have all been alike."""
    sums = {name: value * step for name, value in more.items()}
    return Beat(
        rank=rank,
        world_size=2,
        pid=100 + rank,
        thread=1,
        born_ticks=5,
        step=step,
        counted=step,
        total_s=step_s * step,
        others_s=waits_s * step,
        host=f"host-{rank}",
        **sums,
    )


def by_rank(beats: Iterable[Beat]) -> dict[int, Beat]:
    return {each.rank: each for each in beats}


def look(watch: StallWatch, now_s: float, step: int, **phase: str) -> Stall | None:
    beats = (replace(beat(rank, step=step), **phase) for rank in (0, 1))  # type: ignore[arg-type]
    return watch.look(by_rank(beats), now_s)


def running(watch: StallWatch, *, until_s: int) -> StallWatch:
    """Steps of a second, looked at each second."""
    for second in range(until_s + 1):
        assert look(watch, second, second) is None
    return watch


def test_no_step_for_three_times_the_median_and_the_margin() -> None:
    watch = running(StallWatch(factor=3), until_s=10)
    limit_s = int(3 * 1.0 + MARGIN_S)
    seen = [(second, look(watch, 10 + second, 10)) for second in range(1, limit_s + 2)]
    assert [second for second, stall in seen if stall] == [limit_s, limit_s + 1]
    assert seen[-1][1] == Stall(step=10, waited_s=limit_s + 1.0, usual_s=1.0)
    assert look(watch, 10 + limit_s + 2, 11) is None


def test_a_known_phase_is_no_stall_and_what_follows_it_has_its_own_time() -> None:
    watch = running(StallWatch(factor=3), until_s=10)
    for second in range(11, 100):
        assert look(watch, second, 10, phase="evaluate") is None
    assert all(look(watch, 100 + second, 10) is None for second in range(int(MARGIN_S)))
    assert any(look(watch, 107 + second, 10) for second in range(10))


def test_a_worker_that_is_stopped_in_a_known_phase_is_a_stall() -> None:
    watch = running(StallWatch(factor=3), until_s=10)
    for second in range(11, 100):
        beats = [replace(beat(rank, step=10), phase="save") for rank in (0, 1)]
        assert watch.look(by_rank(beats), second) is None
    stopped = by_rank([beats[0], replace(beats[1], is_stopped=True)])
    seen = [second for second in range(20) if watch.look(stopped, 100 + second)]
    assert seen[0] == int(3 * 1.0 + MARGIN_S) - 1


def test_before_three_steps_two_minutes_are_waited() -> None:
    watch = StallWatch(factor=3)
    assert look(watch, 0, 0) is None
    assert look(watch, 1, 2) is None
    seen = [(second, look(watch, second, 2)) for second in range(2, 130)]
    first = next(stall for _, stall in seen if stall)
    assert first == Stall(step=2, waited_s=FEW_STEPS_S, usual_s=None)


def test_a_long_first_step_is_waited_for_ten_times() -> None:
    watch = StallWatch(factor=3)
    watch.look(by_rank([beat(0, step=0, step_s=30.0)]), 0)
    one = by_rank([beat(0, step=1, step_s=30.0)])
    seen = [watch.look(one, 30 + second) for second in range(302)]
    assert [place for place, stall in enumerate(seen) if stall] == [300, 301]


def test_before_the_first_step_and_in_a_script_with_few_nobody_knows() -> None:
    assert not any(look(StallWatch(factor=3), second, 0) for second in range(900))
    watch = StallWatch(factor=3, learns_pauses=True)
    look(watch, 0, 0)
    assert not any(look(watch, second, 2) for second in range(1, 900))


def test_a_driver_that_looks_first_when_the_last_step_has_ended_knows_their_time() -> None:
    watch = StallWatch(factor=3)
    seen = [(second, look(watch, second, 7)) for second in range(20)]
    assert next(second for second, stall in seen if stall) == int(3 * 1.0 + MARGIN_S)


def test_new_processes_begin_anew() -> None:
    watch = running(StallWatch(factor=3), until_s=10)
    again = by_rank(replace(beat(rank, step=0), pid=200 + rank) for rank in (0, 1))
    assert all(watch.look(again, second) is None for second in range(11, 100))


def test_a_driver_that_could_not_look_blames_nobody() -> None:
    watch = running(StallWatch(factor=3), until_s=10)
    assert look(watch, 300, 10) is None  # Suspended with its machine.
    assert look(watch, 301, 11) is None


def test_a_pause_of_a_script_that_came_once_may_come_again() -> None:
    watch = running(StallWatch(factor=3, learns_pauses=True), until_s=10)
    first = [look(watch, 10 + second, 10) for second in range(1, 31)]
    assert any(first)  # Nobody can know yet.
    assert look(watch, 41, 11) is None
    again = [look(watch, 41 + second, 11) for second in range(1, 65)]
    assert not any(again[:59])
    assert any(again)


def slow_after(
    seconds: int, *, busy_s: tuple[float, ...], step_s: float = 1.0, **more: tuple[float, ...]
) -> list[SlowRank]:
    """Ranks with so many seconds of their own in each step; the rest they wait for others."""
    watch, named = SlowWatch(), []
    for second in range(seconds):
        step = int(second / step_s)
        beats = [
            beat(
                rank,
                step=step,
                step_s=step_s,
                waits_s=step_s - own_s,
                **{name: values[rank] for name, values in more.items()},
            )
            for rank, own_s in enumerate(busy_s)
        ]
        named += watch.look(by_rank(beats), second)
    return named


def test_a_rank_with_more_than_a_fifth_above_the_others_is_named_once() -> None:
    [slow] = slow_after(40, busy_s=(0.5, 0.5, 0.65, 0.5))
    assert (slow.rank, slow.host, slow.steps) == (2, "host-2", 10)
    assert abs(slow.busy_s - 0.65) < 1e-9
    assert abs(slow.others_s - 0.5) < 1e-9
    assert "Rank 2 on host-2" in slow.sentence
    assert "30%" in slow.sentence
    assert slow.part == "computing and other work of its own"


def test_less_than_a_fifth_or_fewer_than_ten_steps_is_nothing() -> None:
    assert slow_after(40, busy_s=(0.5, 0.59)) == []
    assert slow_after(10, busy_s=(0.5, 0.9)) == []
    assert len(slow_after(12, busy_s=(0.5, 0.9))) == 1
    assert slow_after(40, busy_s=(0.5,)) == []


def test_a_few_milliseconds_are_no_reason_to_look_for_a_cause() -> None:
    assert slow_after(40, busy_s=(0.010, 0.014), step_s=0.02) == []


def test_what_a_slow_rank_has_more_of_is_named() -> None:
    [data] = slow_after(20, busy_s=(0.5, 0.9), data_s=(0.1, 0.5))
    assert data.part == "waiting for data"
    [host] = slow_after(20, busy_s=(0.5, 0.9), host_s=(0.1, 0.45))
    assert host.part == "the optimizer in host memory"


def test_one_long_step_among_others_makes_no_slow_rank() -> None:
    watch = SlowWatch()
    own_s = 0.0
    for step in range(30):
        own_s += 8.0 if step == 20 else 0.5
        mine = replace(beat(1, step=step), total_s=10.0 * step, others_s=10.0 * step - own_s)
        other = replace(beat(0, step=step), total_s=10.0 * step, others_s=9.5 * step)
        assert watch.look(by_rank([other, mine]), step) == []


def test_ranks_whose_waits_nobody_measured_are_not_compared() -> None:
    assert slow_after(40, busy_s=(float("nan"), 0.9)) == []
