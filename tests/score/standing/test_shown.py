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


def test_a_busy_engine_is_shown_and_stays_and_an_idle_one_can_be_ended(
    cluster: llmops.Cluster, score: Callable[..., llmops.Run]
) -> None:
    run = score([*numbered(20), {"id": "last", "text": "[hang]"}], **{"engine.keep_s": 900})

    def state() -> str:
        one = engine_of(cluster, run)
        return one.state if one else "none"

    until(lambda: state() == "busy")
    busy = engine_of(cluster, run)
    assert busy is not None
    assert (busy.replica, busy.num_gpus, busy.gpu_ids) == (0, 0, ())
    assert "tiny-llama" in busy.model
    assert busy.engine == "instant:InstantEngine"
    assert (busy.idle_since_s, busy.leaves_at_s) == (None, None)
    assert busy.name in cluster.end_idle_engines().busy
    run.stop()
    run.wait(60, raise_on_failure=False)
    until(lambda: state() == "idle")
    idle = engine_of(cluster, run)
    assert idle is not None
    assert idle.idle_since_s is not None
    assert idle.leaves_at_s == idle.idle_since_s + 900
    shown = process("status", cluster.name).stdout
    assert f"last used by {run.id}" in " ".join(shown.split())
    listed = json.loads(process("engines", cluster.name, "--json").stdout)
    assert idle.name in [one["name"] for one in listed]
    ended = json.loads(process("engines", cluster.name, "--stop", "--json").stdout)
    assert idle.name in ended["ended"]
    until(lambda: state() == "none")
    assert not any("end-engines" in (job.submission_id or "") for job in cluster.jobs())
