"""A model that stays loaded is shown with what it holds, and can be ended."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

import llmops_kernel as llmops
from llmops_kernel.providers.protocol import EngineInfo
from tests.cli.conftest import process
from tests.score.conftest import numbered, until

pytestmark = [pytest.mark.ray, pytest.mark.slow]


def engine_of(cluster: llmops.Cluster, run: llmops.Run) -> EngineInfo | None:
    """Other tests leave engines that wait, so it is found by its run."""
    found = [one for one in cluster.engines() or () if one.run == run.id]
    assert len(found) < 2
    return found[0] if found else None


def until_state(cluster: llmops.Cluster, run: llmops.Run, state: str) -> EngineInfo:
    def is_there() -> bool:
        one = engine_of(cluster, run)
        return one is not None and one.state == state

    until(is_there)
    found = engine_of(cluster, run)
    assert found is not None
    return found


def test_loaded_models_are_shown_and_only_idle_ones_are_ended(
    cluster: llmops.Cluster, score: Callable[..., llmops.Run]
) -> None:
    hanging = score([*numbered(20), {"id": "last", "text": "[hang]"}], **{"engine.keep_s": 900})
    ended = score(numbered(20), **{"engine.keep_s": 900})
    ended.wait(120)
    busy = until_state(cluster, hanging, "busy")
    assert (busy.replica, busy.num_gpus, busy.gpu_ids) == (0, 0, ())
    assert "tiny-llama" in busy.model
    assert busy.engine == "instant:InstantEngine"
    assert (busy.idle_since_s, busy.leaves_at_s) == (None, None)
    idle = until_state(cluster, ended, "idle")
    assert idle.idle_since_s is not None
    assert idle.leaves_at_s == idle.idle_since_s + 900
    shown = " ".join(process("status", cluster.name).stdout.split())
    assert f"last used by {ended.id}" in shown
    assert f" used by {hanging.id}" in shown
    listed = json.loads(process("engines", cluster.name, "--json").stdout)
    assert {busy.name, idle.name} <= {one["name"] for one in listed}
    answer = json.loads(process("engines", cluster.name, "--stop", "--json").stdout)
    assert idle.name in answer["ended"]
    assert busy.name in answer["busy"]
    until(lambda: engine_of(cluster, ended) is None)
    assert engine_of(cluster, hanging) is not None
    until(lambda: not any("end-engines" in (job.submission_id or "") for job in cluster.jobs()))
    # What a stopped run has sent is not worked off: this row would keep the engine busy for ever.
    hanging.stop()
    hanging.wait(60, raise_on_failure=False)
    until_state(cluster, hanging, "idle")
