"""Ray's paragraph on a dead worker becomes one clause that ends with its reason."""

from __future__ import annotations

import pytest

from llmops_kernel.train.ray.failures import MAX_CHARS, death_reason, shortened

ACTOR = """A worker health check failed.
The actor died unexpectedly before finishing this task.
\tclass_name: RayTrainWorker
\tactor_id: 5c7a3f1e0b2d4c6e8f90a1b201000000
\tpid: 41237
\tnamespace: 0f9d3c52-7d7b-4a55-9a5e-93f5b8a6f7f1
\tip: 10.4.0.17
The actor is dead because its {0}"""
CLOSED = (
    "worker process has died. Worker exit type: SYSTEM_ERROR Worker exit detail: Worker"
    " unexpectedly exits with a connection error code 2. End of file. Some common causes include:"
    " (1) the process was killed by the OOM killer due to high memory usage, (2) ray stop --force"
    " was called, or (3) the worker crashed unexpectedly due to SIGSEGV or another unexpected"
    " error."
)
MONITOR = (
    "worker process has died. Task was killed due to the node running low on memory.\nMemory on"
    " the node (IP: 10.4.0.17, ID: ab12) where the task was running was 30.12GB / 32.00GB (0.941),"
    " which exceeds the memory usage threshold of 0.94. Ray killed this worker (ID: cd34) because"
    " it was the most recently scheduled task; to see more information about memory usage on this"
    " node, use `ray logs raylet.out -ip 10.4.0.17`."
)


@pytest.mark.parametrize(
    ("detail", "expected"),
    [
        (CLOSED, "was killed, probably by signal 9 because its node ran out of memory"),
        (
            MONITOR,
            "was killed by Ray because its node ran out of memory: 30.12GB of 32.00GB were in use",
        ),
        ("node has died.", "was lost with its node"),
        (
            "worker process has died. Worker exit detail: Worker exits with an exit code 1.",
            "exited with code 1",
        ),
        (
            "worker process has died. Worker exits with an exit code 137.",
            "was killed by signal 9 (SIGKILL), probably because its node ran out of memory",
        ),
        (
            "worker process has died. Worker exits with an exit code -11.",
            "was killed by signal 11 (SIGSEGV)",
        ),
        ("owner was killed by `ray.kill`.", "was stopped by Ray"),
    ],
)
def test_the_reason_is_one_clause_with_the_node(detail: str, expected: str) -> None:
    assert death_reason(ACTOR.format(detail)) == f"{expected} (node 10.4.0.17)"


def test_a_health_check_without_an_answer_names_its_time() -> None:
    text = "A worker health check timed out after 600 seconds on rank 1."
    assert death_reason(text) == "did not answer a health check within 600 seconds"


def test_a_text_that_nobody_knows_is_kept_and_never_cut_inside_a_word() -> None:
    assert death_reason("something unheard of died") == "died: something unheard of died"
    long = "It died of a cause " + "with many words " * 40
    text = shortened(long)
    assert len(text) <= MAX_CHARS + 2
    assert text.endswith((" with …", " many …", " words …"))
    sentence = "One whole sentence is long enough to be all that a reader of it ever needs here."
    assert shortened(f"{sentence} {long}") == sentence


def test_an_empty_text_says_that_nothing_was_reported() -> None:
    assert death_reason("") == "died: no reason was reported"
