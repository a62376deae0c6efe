"""Tells from the workers' beats who is slower than the others, and when no step ends any more.

Pure: the beats and the time are arguments. The time is that of the driver's own clock, at which it
saw a beat: clocks of nodes differ.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Final

from llmops_kernel.driver.beats import Beat, Between, between

MARGIN_S: Final = 7.0
"""Seconds that are waited besides the multiple of a step's time: to read the stacks takes up to
three more."""
_LEAST_STEPS: Final = 3
FEW_STEPS_S: Final = 120.0
"""Seconds that are waited after the first step and after the second, whose time tells little."""
_FEW_STEPS_FACTOR: Final = 10.0
_HELD_UP_S: Final = 3.0
_PAUSES: Final = 2.0
_RECENT: Final = 50

Beats = Mapping[int, Beat]
"""By rank."""


@dataclass(frozen=True)
class Stall:
    """No step has ended for too long."""

    step: int
    waited_s: float
    usual_s: float | None
    """Seconds of a step; None before three."""


class StallWatch:
    """Looks at the beats again and again; a stall goes on until a step or a phase begins or ends.

    A known phase (an evaluation, a save, the first step) is no stall, however long it takes, unless
    a signal has stopped a worker in it.
    """

    def __init__(self, *, factor: float, learns_pauses: bool = False) -> None:
        """Set it up. `factor`: of the median step. `learns_pauses`: the phases are not known, as of
        a script, so a pause that has ended by itself may come again and take twice as long.
        """
        self._factor, self._learns_pauses = factor, learns_pauses
        self._times: deque[float] = deque(maxlen=_RECENT)
        self._before: Beats = {}
        self._steps = 0
        self._moved_s = self._looked_s = 0.0
        self._longest_pause_s = 0.0

    @property
    def usual_s(self) -> float | None:
        """Return the median time of a step; None before three steps."""
        return median(self._times) if self._steps >= _LEAST_STEPS else None

    def wait_longer(self, seconds: float) -> None:
        """Take a stall for a phase that nobody has told of: so much more time from now on."""
        self._moved_s += seconds

    def look(self, beats: Beats, now_s: float) -> Stall | None:
        """Return the stall there is; None while steps end, or where none can be told of."""
        held_up_s = now_s - self._looked_s - _HELD_UP_S
        self._looked_s = now_s
        if not beats or not self._before or _processes(beats) != _processes(self._before):
            self._before, self._moved_s = dict(beats), now_s
            # A busy driver may look for the first time when the last step has ended.
            self._steps = max((beat.counted for beat in beats.values()), default=0)
            self._times.clear()
            means = [beat.total_s / beat.counted for beat in beats.values() if beat.counted]
            self._times.extend([max(means)] if means else [])
            return None
        if held_up_s > 0:  # The driver could not look: so perhaps the workers could not run.
            self._moved_s += held_up_s
        steps = [between(self._before[rank], beat) for rank, beat in beats.items()]
        known = [one for one in steps if one is not None]
        if known:
            self._steps += max(one.steps for one in known)
            self._times.append(max(one.step_s for one in known))
        goes_on = not any(beat.is_stopped for beat in beats.values())
        is_in_phase = goes_on and any(beat.phase for beat in beats.values())
        if _signs(beats) != _signs(self._before) or is_in_phase:
            self._longest_pause_s = max(self._longest_pause_s, now_s - self._moved_s)
            self._moved_s = now_s
        self._before = dict(beats)
        return self._stall(beats, now_s)

    def _stall(self, beats: Beats, now_s: float) -> Stall | None:
        usual_s, waited_s = self.usual_s, now_s - self._moved_s
        if usual_s is not None:
            limit_s = self._factor * usual_s + MARGIN_S
        elif self._learns_pauses or not any(beat.step for beat in beats.values()):
            return None
        else:
            limit_s = max(FEW_STEPS_S, _FEW_STEPS_FACTOR * max(self._times, default=0.0))
        if self._learns_pauses:
            limit_s = max(limit_s, _PAUSES * self._longest_pause_s)
        if waited_s < limit_s:
            return None
        return Stall(max(beat.step for beat in beats.values()), waited_s, usual_s)


def _processes(beats: Beats) -> set[tuple[int, int, int]]:
    return {(beat.rank, beat.pid, beat.born_ticks) for beat in beats.values()}


def _signs(beats: Beats) -> list[tuple[int, str]]:
    """Return what shows that something goes on."""
    return [(beat.step, beat.phase) for _, beat in sorted(beats.items())]


# --- The slow worker ---


EXCESS: Final = 1.2
STEPS: Final = 10
_WINDOW_S: Final = 5.0
_LEAST_EXCESS_S: Final = 0.005
"""Less than this is lost in what a system does besides, and no reason to look for a cause."""


@dataclass(frozen=True)
class SlowRank:
    """A rank that the others wait for in each step."""

    rank: int
    host: str
    busy_s: float
    """Mean seconds of a step in which it does not wait for others."""
    others_s: float
    """The same of the others, their median."""
    part: str
    """What it has more of."""
    steps: int

    @property
    def sentence(self) -> str:
        more = self.busy_s / self.others_s - 1 if self.others_s else float("inf")
        return (
            f"Rank {self.rank} on {self.host} is slower than the other workers: {self.busy_s:.3g} s"
            f" of its own in a step, {more:.0%} above their median of {self.others_s:.3g} s, over"
            f" {self.steps:,} steps. The others wait for it. What it has more of: {self.part}."
        )


class SlowWatch:
    """Names a rank whose own time is above the others' median by more than a fifth.

    For ten steps and five seconds, and in each look of them: a single long step is none. Ranks
    whose waits for others cannot be measured are not compared.
    """

    def __init__(self) -> None:
        self._looks: deque[tuple[float, Beats]] = deque()
        self.slow: dict[int, SlowRank] = {}
        """The ranks that are slow now."""

    def look(self, beats: Beats, now_s: float) -> list[SlowRank]:
        """Take the beats; return the ranks that have become slow since the last look."""
        if len(beats) < 2:
            return []
        if self._looks and _processes(self._looks[-1][1]) != _processes(beats):
            self._looks.clear()
            self.slow.clear()
        if self._looks and not _all_moved(self._looks[-1][1], beats):
            return []
        self._looks.append((now_s, dict(beats)))
        if not self._is_long_enough(0):
            return []
        while self._is_long_enough(1):
            self._looks.popleft()
        before = set(self.slow)
        self.slow = {one.rank: one for rank in beats if (one := self._judge(rank)) is not None}
        return [one for rank, one in self.slow.items() if rank not in before]

    def _is_long_enough(self, first: int) -> bool:
        if len(self._looks) <= first + 1:
            return False
        (begun_s, begin), (end_s, end) = self._looks[first], self._looks[-1]
        steps = min(end[rank].counted - begin[rank].counted for rank in end)
        return steps >= STEPS and end_s - begun_s >= _WINDOW_S

    def _judge(self, rank: int) -> SlowRank | None:
        """Return the rank if it is slow in the whole window and in each part of it."""
        looks = [beats for _, beats in self._looks]
        pairs = [(looks[0], looks[-1]), *pairwise(looks)]
        whole: SlowRank | None = None
        for begin, end in pairs:
            slow = _slow_between(rank, begin, end)
            if slow is None:
                return None
            whole = whole or slow
        return whole


def _all_moved(before: Beats, now: Beats) -> bool:
    return all(now[rank].counted > before[rank].counted for rank in now)


def _slow_between(rank: int, begin: Beats, end: Beats) -> SlowRank | None:
    each = {r: steps for r in end if (steps := between(begin[r], end[r])) is not None}
    mine = each.pop(rank, None)
    if mine is None or mine.busy_s is None or not each:
        return None
    theirs = [steps.busy_s for steps in each.values() if steps.busy_s is not None]
    if len(theirs) < len(each):
        return None
    middle = median(theirs)
    if mine.busy_s <= EXCESS * middle or mine.busy_s - middle < _LEAST_EXCESS_S:
        return None
    part = slow_part(mine, list(each.values()))
    return SlowRank(rank, end[rank].host, mine.busy_s, middle, part, mine.steps)


def slow_part(mine: Between, others: Sequence[Between]) -> str:
    """Return what a rank has more of than the median of the others."""

    def excess(values: Sequence[float | None], own: float | None) -> float:
        return (own or 0.0) - median([value or 0.0 for value in values])

    data = excess([one.data_s for one in others], mine.data_s)
    host = excess([one.host_s for one in others], mine.host_s)
    rest = excess([one.busy_s for one in others], mine.busy_s) - data - host
    parts = {
        "waiting for data": data,
        "the optimizer in host memory": host,
        "computing and other work of its own": rest,
    }
    return max(parts, key=lambda words: parts[words])
