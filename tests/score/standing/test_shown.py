"""A model that stays loaded is shown with what it holds, and can be ended."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

import llmops_kernel as llmops
from llmops_kernel.providers.protocol import EngineInfo
from tests.cli.conftest import process
from tests.end_to_end.conftest import processes
from tests.score.conftest import numbered, output_of, table_of
from tests.waiting import until

pytestmark = [pytest.mark.ray, pytest.mark.slow]
LEAVE = """
import ray, sys
ray.init(log_to_driver=False)
engine = ray.get_actor(sys.argv[1], namespace="llmops-engines")
print(ray.get(engine.leave.remote(only_idle=False)))
"""


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


def _engines() -> set[int]:
    return {process.pid for process in processes("ray::EngineActor")}


def test_a_stop_reaches_the_engine_that_took_the_place_of_the_first(
    cluster: llmops.Cluster, score: Callable[..., llmops.Run], tmp_path: Path
) -> None:
    rows = [*numbered(9), {"id": "last", "text": "[hang]"}]
    run = score(rows, **{"engine.keep_s": 900})
    name = until_state(cluster, run, "busy").name
    before = _engines()
    (tmp_path / "leave.py").write_text(LEAVE)
    cluster.submit(tmp_path / "leave.py", args=[name]).wait(60)
    until(lambda: bool(_engines() - before))
    until_state(cluster, run, "busy")
    run.stop()
    run.wait(60, raise_on_failure=False)
    until_state(cluster, run, "idle")


def test_a_row_is_not_to_blame_for_an_engine_that_left(
    cluster: llmops.Cluster, score: Callable[..., llmops.Run], tmp_path: Path
) -> None:
    run = score([{"id": "only", "text": f"[hang:{tmp_path}/once] answered by the second"}])
    name = until_state(cluster, run, "busy").name
    (tmp_path / "leave.py").write_text(LEAVE)
    cluster.submit(tmp_path / "leave.py", args=[name]).wait(60)
    run.wait(60)
    (row,) = table_of(output_of(run))
    assert row["error"] is None
    assert row["output"].endswith("answered by the second")


def test_a_run_that_is_stopped_while_its_engine_loads_ends_it_unless_another_waits(
    cluster: llmops.Cluster, score: Callable[..., llmops.Run]
) -> None:
    settings = {"engine.keep_s": 900, "engine.options": {"load_s": 12.0}}
    first, second = score(numbered(20), **settings), score(numbered(20), **settings)
    until(lambda: all("engine" in _phases(run) for run in (first, second)))
    first.stop()
    first.wait(60, raise_on_failure=False)
    second.wait(120)
    assert _phases(second)["engine"].startswith("loaded in 12")
    settings["engine.options"] = {"load_s": 60.0}
    alone = score(numbered(20), **settings)
    until_state(cluster, alone, "loading")
    alone.stop()
    alone.wait(60, raise_on_failure=False)
    until(lambda: engine_of(cluster, alone) is None, timeout_s=20)


def _phases(run: llmops.Run) -> dict[str, str]:
    return {span.name: span.detail for span in run.view.phases()}
