"""What is tried again: a lost worker is, an error in the code is not."""

from __future__ import annotations

from typing import Any

import pytest
from ray.train import WorkerGroupError
from ray.train.v2._internal.exceptions import WorkerHealthCheckFailedError

from llmops_kernel.errors import HookError
from llmops_kernel.train.policy import cause, is_code_failure

LOST = WorkerHealthCheckFailedError(
    "A worker health check failed.", failure=RuntimeError("The actor died: exit code 137")
)
PEER = RuntimeError("[gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:1")
HOOK = HookError("The hook format_example raised KeyError on row 3", remedy="see hooks.py:6")


@pytest.mark.parametrize(
    ("failures", "is_code"),
    [
        ({0: HOOK}, True),
        ({0: PEER, 1: HOOK}, True),
        ({0: PEER}, False),
        ({0: PEER, 1: LOST}, False),
        ({1: LOST}, False),
        ({0: ValueError("bad"), 1: LOST}, False),
        ({}, False),
    ],
)
def test_only_errors_in_the_code_are_not_tried_again(
    failures: dict[int, Any], is_code: bool
) -> None:
    assert is_code_failure(WorkerGroupError("text", failures)) is is_code


def test_the_cause_names_the_lost_rank_and_not_its_peers() -> None:
    text = cause(WorkerGroupError("text", {0: PEER, 1: LOST}))
    assert text.startswith("worker rank 1 died")
    assert "137" in text
