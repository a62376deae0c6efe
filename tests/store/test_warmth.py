"""What a run's journal says of how its processes were started."""

from __future__ import annotations

import pytest

from llmops_kernel.metrics.events import ProcessEvent, parse_event
from llmops_kernel.store.journal.training_view import TrainingView

GONE, OLD = "the fork server was gone; it is being started again", "other packages"


def process(
    rank: int | None,
    reason: str = "",
    *,
    stream: str = "1-worker-1",
    seq: int = 0,
    time_s: float = 10.0,
    private_bytes: int | None = None,
) -> ProcessEvent:
    return ProcessEvent(
        role="driver" if rank is None else "worker",
        rank=rank,
        warm=not reason,
        reason=reason,
        private_bytes=private_bytes,
        stream="1-driver" if rank is None else stream,
        seq=seq,
        time_s=time_s,
        attempt=int(stream.partition("-")[0]),
    )


def warmth_of(*events: ProcessEvent):
    found = TrainingView(events).warmth
    assert found == TrainingView(reversed(events)).warmth
    assert found is not None
    return found


def test_nothing_is_known_before_a_process_reports():
    assert TrainingView().warmth is None
    assert TrainingView().summary()["warmth"] is None


@pytest.mark.parametrize(
    ("events", "text", "short"),
    [
        ([process(None)], "warm", "warm"),
        ([process(None), process(0), process(1)], "warm", "warm"),
        ([process(None, GONE), process(0, GONE)], f"cold: {GONE}", "cold"),
        (
            [process(None), process(0), process(1, GONE)],
            f"2 warm, 1 cold (rank 1): {GONE}",
            "2 warm, 1 cold",
        ),
        (
            [process(None, GONE), process(0, OLD), process(1, OLD)],
            f"2 cold (rank 0, rank 1): {OLD}; 1 cold (driver): {GONE}",
            "cold",
        ),
        (
            [process(None), *(process(rank, GONE) for rank in range(64))],
            f"1 warm, 64 cold (rank 0, rank 1, rank 2 and 61 more): {GONE}",
            "1 warm, 64 cold",
        ),
    ],
)
def test_words(events, text, short):
    found = warmth_of(*events)
    assert (found.text, found.short) == (text, short)
    assert found.warm + found.cold == len(events)


def test_memory_is_known_from_the_first_step_on_whatever_is_reported_later():
    early = [process(None, seq=1), process(0, seq=2)]
    assert warmth_of(*early).private_bytes is None
    measured = [process(r, seq=3 + r, time_s=20, private_bytes=100 + r) for r in (0, 1)]
    # At the end of a run that failed the driver passes on what the ranks said at their start.
    late = process(1, stream="1-driver", seq=9, time_s=30)
    found = warmth_of(*early, *measured, late)
    assert (found.private_bytes, found.warm) == ((100, 101), 3)


def test_a_restarted_worker_group_and_a_retry_restart_the_count():
    first = [process(None, GONE), process(0, GONE, private_bytes=5)]
    second = process(0, stream="1-worker-2", seq=1, time_s=50)
    found = warmth_of(*first, second)
    assert (found.warm, found.cold, found.private_bytes) == (1, 1, None)
    assert warmth_of(*first, second, process(0, stream="2-worker-1", time_s=60)).text == "warm"


def test_an_event_survives_the_journal():
    event = process(1, GONE, seq=4, private_bytes=7)
    assert parse_event(event.model_dump_json(exclude_none=True)) == event
    assert TrainingView([event]).summary()["warmth"]["reasons"] == (GONE,)
