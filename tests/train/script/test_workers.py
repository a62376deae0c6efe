"""What a script's run says when a worker's process is gone."""

from __future__ import annotations

from llmops_kernel.train.script.workers import lost_worker


def test_a_killed_worker_asks_for_less_memory_before_a_retry() -> None:
    failure = lost_worker(RuntimeError("the worker was killed by SIGKILL"), rank=1)
    assert failure.message.endswith("killed by signal 9, probably because memory ran out.")
    assert failure.remedy.startswith("if memory ran out, submit it again with a smaller batch")
    assert "`llmops retry` resumes" in failure.remedy
    assert failure.ranks == (1,)
