from __future__ import annotations

import pytest

from llmops_kernel.jobs.client import Job
from llmops_kernel.jobs.observe import MAX_CHARS, end_of_job, end_without_cluster, reason
from llmops_kernel.metrics.events import CheckpointEvent, PhaseEvent
from llmops_kernel.store.journal.training_view import TrainingView
from llmops_kernel.store.journal.view import STOP_PHASE
from tests.jobs.conftest import step
from tests.messages import missing

AT_STEP_12 = [
    step(12).model_copy(update={"stream": "1-worker-0", "seq": 1, "time_s": 2.0}),
    CheckpointEvent(step=10, path="/c/10", stream="1-worker-0", seq=2, time_s=1.0),
]
RUNTIME_ENV = (
    "runtime_env setup failed: Failed to set up runtime environment.\n  File 'x.py', line 3\n"
    "    raise IOError(\nOSError: Failed to download runtime_env file package from the GCS.\n"
)


def end(**fields):
    job = Job.model_validate({"status": "FAILED", **fields})
    return end_of_job(job, run_id="lora-1", view=TrainingView(AT_STEP_12))


@pytest.mark.parametrize(
    ("fields", "values", "remedy"),
    [
        (
            {"error_type": "JOB_ENTRYPOINT_COMMAND_ERROR", "driver_exit_code": -9},
            ["SIGKILL", "step 12"],
            "step 10",
        ),
        (
            {"error_type": "JOB_ENTRYPOINT_COMMAND_ERROR", "driver_exit_code": 137},
            ["SIGKILL"],
            "llmops retry lora-1",
        ),
        (
            {"driver_exit_code": 1, "message": "Traceback\nModuleNotFoundError: no x\n"},
            ["exit code 1", "step 12", "ModuleNotFoundError: no x"],
            "llmops logs lora-1",
        ),
        (
            {"error_type": "RUNTIME_ENV_SETUP_FAILURE", "message": RUNTIME_ENV},
            ["OSError: Failed to download runtime_env file package"],
            "upload",
        ),
        (
            {"error_type": "RUNTIME_ENV_SETUP_FAILURE", "message": "OSError: No space left"},
            ["No space left"],
            "space",
        ),
        ({"error_type": "JOB_SUPERVISOR_ACTOR_DIED"}, ["step 12", "node"], "status"),
        ({"error_type": "JOB_SUPERVISOR_ACTOR_START_TIMEOUT"}, ["schedule"], "llmops status"),
        ({"error_type": "SOMETHING_NEW", "message": "a\nnew thing\n"}, ["new thing"], "retry"),
        ({}, [], "llmops retry lora-1"),
    ],
)
def test_each_way_to_die_says_what_happened_and_what_to_do(fields, values, remedy):
    event = end(**fields)
    assert event.state == "FAILED"
    assert event.last_step == 12
    assert event.message
    assert missing(event.message, *values) == []
    assert remedy in event.remedy


def test_a_stop_before_the_driver_has_started_does_not_blame_the_driver():
    begun = PhaseEvent(name="pending", state="end", stream="1-client", seq=1, time_s=1.0)
    stop = PhaseEvent(name=STOP_PHASE, state="begin", stream="1-observer", seq=1, time_s=2.0)
    event = end_of_job(Job(status="STOPPED"), run_id="lora-1", view=TrainingView([begun, stop]))
    assert event.state == "STOPPED"
    assert "report" not in event.message
    assert event.remedy
    driver = PhaseEvent(name="driver", state="begin", stream="1-driver", seq=1, time_s=1.5)
    event = end_of_job(
        Job(status="STOPPED"), run_id="lora-1", view=TrainingView([begun, driver, stop])
    )
    assert missing(event.message, "phase driver", "report") == []


def test_a_stop_without_a_word_is_stopped_and_an_exit_of_zero_is_no_failure():
    assert end(status="STOPPED").state == "STOPPED"
    assert end(status="SUCCEEDED", driver_exit_code=0).state == "SUCCEEDED"


def test_without_a_checkpoint_nobody_promises_to_go_on_from_one():
    event = end_without_cluster(
        "local", run_id="lora-1", verb="went away", view=TrainingView(AT_STEP_12[:1])
    )
    assert missing(event.message, "'local'", "step 12") == []
    assert "llmops retry lora-1" in event.remedy
    assert "checkpoint of" not in event.remedy


def test_a_long_reason_is_cut_after_a_word():
    text = reason("ValueError: " + "many words " * 60)
    assert len(text) <= MAX_CHARS + 2
    assert text.endswith(("many …", "words …"))
