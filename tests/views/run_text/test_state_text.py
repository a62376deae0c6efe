"""Why a run is in its state: the same sentence on every screen."""

from __future__ import annotations

from llmops_kernel.store.journal.training_view import TrainingView
from llmops_kernel.views.snapshot import waiting_text
from llmops_kernel.views.state_text import state_text
from llmops_kernel.views.static_run import one_line
from tests.store.events import end, phase, queue, restart, start, step, steps

REASON = "needs 2 CPUs; 2 of 2 CPUs are used by run lora-1"


def test_a_queued_run_says_what_it_waits_for_and_its_place() -> None:
    view = TrainingView([queue("begin", 20, reason=REASON, place=2, length=3)])
    text = f"Place 2 of 3 in the queue: {REASON}"
    assert (state_text(view), waiting_text(view)) == (text, "Waiting for resources…")
    assert one_line(view, now_s=30) == f"Queued, {text}"
    assert view.summary()["queue"] == {"reason": REASON, "place": 2, "length": 3}
    unknown = TrainingView([queue("begin", 20, reason=REASON)])
    assert state_text(unknown) == f"Waiting for resources: {REASON}"


def test_a_restart_names_its_number_the_checkpoint_and_the_cause() -> None:
    died = restart(10, time_s=150, seq=5)
    view = TrainingView([*steps(1, 15), died])
    assert state_text(view) == "Restart 1, from the checkpoint of step 10: worker died"
    counted = died.model_copy(update={"failures_left": 2, "from_step": 0})
    text = state_text(TrainingView([*steps(1, 15), counted]))
    assert text == "Restart 1 of 3, from the beginning: worker died"
    again = [start(stream="1-worker-2", first_step=11, time_s=160)]
    assert state_text(TrainingView([*steps(1, 15), died, *again])) == ""


def test_a_stop_says_who_asked_and_an_end_says_why() -> None:
    stop = phase("stop", "begin", 200, stream="1-observer", seq=1, detail="requested by the user")
    assert state_text(TrainingView([step(1), stop])) == ("Stopping: requested by the user")
    assert state_text(TrainingView([step(1), end("FAILED", message="No disk")])) == "No disk"
    assert state_text(TrainingView([step(1)])) == ""
