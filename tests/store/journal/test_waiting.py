"""States of a run that waits for resources, or for new workers after one was lost."""

from __future__ import annotations

import pytest

from llmops_kernel.store.journal.training_view import TrainingView
from tests.store.events import end, phase, queue, restart, start, step, steps

SUBMITTED = (
    phase("snapshot", "begin", 10, stream="1-client", seq=1),
    phase("pending", "begin", 11, stream="1-client", seq=3),
)


@pytest.mark.parametrize(
    ("events", "state"),
    [
        ([*SUBMITTED, queue("begin", 20)], "QUEUED"),
        ([*SUBMITTED, queue("begin", 20), queue("begin", 25, seq=102)], "QUEUED"),
        ([step(1), queue("begin", 20), queue("end", 30, seq=102)], "RUNNING"),
        ([queue("begin", 20), phase("stop", "begin", 21, stream="1-client", seq=4)], "STOPPING"),
        ([queue("begin", 20), end("STOPPED")], "STOPPED"),
        (
            [queue("begin", 20), phase("snapshot", "begin", 2000, stream="2-client", seq=1)],
            "PENDING",
        ),
        ([*steps(1, 15), restart(10, time_s=150, seq=5)], "RESTARTING"),
        # The workers may have to wait for their resources once more.
        ([*steps(1, 15), restart(10, time_s=150, seq=5), queue("begin", 151)], "QUEUED"),
        (
            [
                *steps(1, 15),
                restart(10, time_s=150, seq=5),
                start(stream="1-worker-2", first_step=11, time_s=160),
            ],
            "RUNNING",
        ),
        ([*steps(1, 15), restart(10, time_s=150, seq=5), end("FAILED", time_s=170)], "FAILED"),
    ],
)
def test_state(events, state):
    assert TrainingView(events).state == state
    assert TrainingView(reversed(events)).state == state
