"""What can be done to a run depends on its kind and its state."""

from __future__ import annotations

import pytest

from llmops_kernel.kinds.kind import RunKind
from llmops_kernel.metrics.events import RunState
from llmops_kernel.server.runs.rows import actions_now

ANY = RunKind(name="toy", title="Toy")
SHORT = RunKind(name="short", title="Short", actions=frozenset({"stop", "delete"}))


@pytest.mark.parametrize(
    ("kind", "state", "actions"),
    [
        (ANY, "PENDING", ["stop", "resubmit", "compare"]),
        (ANY, "RUNNING", ["stop", "resubmit", "compare"]),
        (ANY, "STOPPING", ["resubmit", "compare"]),
        (ANY, "SUCCEEDED", ["retry", "resubmit", "compare", "delete"]),
        (SHORT, "RUNNING", ["stop"]),
        (SHORT, "FAILED", ["delete"]),
    ],
)
def test_actions(kind: RunKind, state: RunState, actions: list[str]) -> None:
    assert actions_now(kind, state) == actions
