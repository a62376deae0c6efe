"""A script's steps are profiled between its reports: on request, from the config, or not at all."""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from llmops_kernel.driver.beats import remove_beats
from llmops_kernel.driver.tell import pop_here, put_here
from llmops_kernel.metrics.events import ProfileEvent
from llmops_kernel.store.record import RunSpec
from llmops_kernel.track.stopping import FileBoard
from llmops_kernel.train.script.profiling import ScriptProfiles
from tests.train.script.conftest import ScriptRun
from tests.waiting import until

SCRIPT = """
    import time
    import torch
    from llmops_kernel import track

    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    track.start(total_steps=400, model=model)
    for step in range(1, 401):
        loss = model(torch.randn(8, 64)).sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        time.sleep(0.02)
        track.step(loss=loss, tokens=8, flops=1e6)
        if track.should_stop():
            break
"""
KEY = "script-1/1/profile"


@pytest.fixture(autouse=True)
def own_temp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)


def test_a_script_without_ray_is_profiled_by_its_config_and_on_request(
    script_run: ScriptRun,
) -> None:
    script_run.write(SCRIPT)
    process = script_run.start(profile={"steps": [2, 60]})
    profiles: list[Any] = until(lambda: script_run.events("profile"), timeout_s=60)
    assert (profiles[0].first_step, profiles[0].last_step) == (2, 60)
    put_here(KEY, {"steps": 3})
    until(lambda: len(script_run.events("profile")) == 2, timeout_s=30)
    process.terminate()
    script_run.finish(process)
    first, second = script_run.events("profile")
    assert isinstance(second, ProfileEvent)
    assert second.last_step == second.first_step + 2
    timeline = Path(second.path) / "rank-0.json.gz"
    assert json.loads(gzip.decompress(timeline.read_bytes()))["traceEvents"]
    assert {"Sequential", "Linear", "backward"} <= {call.name for call in second.calls}
    assert "train.py:" in first.groups[0].place or first.groups[0].note
    steps: Any = script_run.events("step")
    profiled = {step.step for step in steps if step.profiled}
    assert profiled == {*range(2, 61), *range(second.first_step, second.last_step + 1)}
    assert {step.mfu for step in steps if step.profiled} == {None}
    names = [(event.name, event.state) for event in script_run.events("phase")]
    assert names.count(("profile", "end")) == 2
    assert names.count(("profile_request", "end")) == 1
    outputs: Any = script_run.events("output")
    assert [output.what for output in outputs] == ["profile", "profile"]


def profiles_of(tmp_path: Path, rank: int, events: list[Any], **config: Any) -> ScriptProfiles:
    spec = RunSpec(run_id="script-1", attempt=1, config=config, run_root="", submitted_s=0.0)
    return ScriptProfiles(
        spec,
        FileBoard(tmp_path),
        rank=rank,
        world_size=2,
        is_local=True,
        folder=tmp_path,
        visible=lambda: None,
        emit=events.append,
    )


def test_all_ranks_profile_the_steps_that_rank_0_has_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without torch in the process there is nothing to profile, which rank 0 says."""
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    put_here(KEY, {"steps": 500})
    events: list[Any] = []
    ranks = [profiles_of(tmp_path, rank, events if rank == 0 else []) for rank in (0, 1)]
    step = 0

    def published() -> list[int] | None:
        nonlocal step
        step += 1
        for one in ranks:
            one.end_step(step, time_s=0.5, is_last=False)
        return FileBoard(tmp_path).get("profile_steps")

    first, last = until(published, timeout_s=10)
    # Three steps of 0.5 s are ahead; a profile has at most 100 steps.
    assert (first, last) == (step + 5, step + 104)
    until(lambda: ranks[1].end_step(first - 1, time_s=0.5, is_last=False), timeout_s=10)
    assert not ranks[0].end_step(first - 2, time_s=0.5, is_last=False)
    assert ranks[0].end_step(first - 1, time_s=0.5, is_last=False)
    assert not ranks[0].is_on
    assert [event.kind for event in events] == ["warning", "phase"]
    assert "not imported torch" in events[0].message
    assert pop_here(KEY) is None
    remove_beats("script-1", 1)
