"""When a further replica is started."""

from __future__ import annotations

from llmops_kernel.score.fleet import TRIES, Scaling


def test_a_further_replica_needs_time_work_and_permission() -> None:
    scaling = Scaling(2, parts_at_once=2, now_s=0)
    assert not scaling.is_due(4, count=1, parts_left=9)
    assert scaling.is_due(5, count=1, parts_left=9)
    assert not scaling.is_due(5, count=1, parts_left=2)
    assert not scaling.is_due(5, count=2, parts_left=9)
    scaling.note_attempt(5)
    assert not scaling.is_due(9, count=1, parts_left=9)
    assert scaling.is_due(10, count=1, parts_left=9)


def test_one_that_cannot_load_is_tried_ever_later_and_then_no_more() -> None:
    """It was started every five seconds, as long as the run went on, with a warning each time."""
    scaling, now_s, starts, warnings = Scaling(2, parts_at_once=2, now_s=0), 0.0, [], 0
    while now_s < 3600:
        now_s += 1
        if scaling.is_due(now_s, count=1, parts_left=99):
            starts.append(now_s)
            scaling.note_attempt(now_s)
            warnings += scaling.failed(now_s)
    assert starts == [5, 25, 105]
    assert len(starts) == TRIES
    assert warnings == 1
    assert scaling.gave_up
