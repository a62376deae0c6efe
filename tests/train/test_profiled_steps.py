"""Steps that are profiled: their files, what they say, and that they count in no speed."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from llmops_kernel.metrics.events import EndEvent
from llmops_kernel.store.journal.training_view import TrainingView
from tests.train.test_loop import of, run

Config = Callable[..., Any]


def test_the_steps_of_the_config_are_profiled(
    make_config: Config, workspace: Path, tmp_path: Path
) -> None:
    events = run(make_config(profile={"steps": [3, 4]}), tmp_path / "run", workspace)
    (profile,) = of(events, "profile")
    assert (profile.first_step, profile.last_step) == (3, 4)
    steps = {step.step: step for step in of(events, "step")}
    assert [step.step for step in steps.values() if step.profiled] == [3, 4]
    for step in (3, 4):
        assert (steps[step].mfu, steps[step].tokens_per_second) == (None, None)
        assert steps[step].flops > 0
    assert steps[5].mfu is not None
    names = [row.name for row in profile.operators]
    assert "aten::mm" in names or "aten::addmm" in names
    times = [row.self_cpu_s for row in profile.operators]
    assert times == sorted(times, reverse=True)
    # On one thread: what the operators did is within what the steps took.
    assert 0 < sum(times) <= profile.time_in_steps_s * 1.05
    (output,) = [event for event in of(events, "output") if event.what == "profile"]
    assert output.path == profile.path == str(tmp_path / "run" / "profiles" / "3-4")
    tree = {call.name: call for call in profile.calls}
    assert {"thread 1", "LlamaDecoderLayer", "backward", "Optimizer.step#AdamW.step"} <= tree.keys()
    assert profile.calls[tree["LlamaAttention"].caller].name == "LlamaDecoderLayer"
    assert 0 < tree["thread 1"].cpu_s <= profile.time_in_steps_s
    assert "LlamaDecoderLayer" not in names
    (group,) = profile.groups
    assert group.ranks == (0,)
    assert group.frames or group.note
    begin, end = [event for event in of(events, "phase") if event.name == "profile"]
    assert (begin.state, begin.detail, end.state) == ("begin", "steps 3 to 4", "end")


def test_the_timeline_is_what_perfetto_reads(
    make_config: Config, workspace: Path, tmp_path: Path
) -> None:
    """Chrome's trace event format: complete events have a name, begin, duration and a thread."""
    run(make_config(profile={"steps": [2, 3]}), tmp_path / "run", workspace)
    path = tmp_path / "run" / "profiles" / "2-3" / "rank-0.json.gz"
    with gzip.open(path) as file:
        trace = json.load(file)
    complete = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    assert len(complete) > 100
    assert all(event.keys() >= {"name", "ts", "dur", "pid", "tid"} for event in complete)
    assert any(event["name"].startswith("Optimizer.step") for event in complete)


def test_profiled_steps_are_in_no_figure_of_speed(
    make_config: Config, workspace: Path, tmp_path: Path
) -> None:
    events = run(make_config(profile={"steps": [3, 4]}), tmp_path / "run", workspace)
    view = TrainingView([*events, EndEvent(state="SUCCEEDED", stream="1-driver", seq=1)])
    counted = [step for step in view.steps if step.step not in (1, 3, 4)]
    whole = view.whole
    assert whole is not None
    times = [step.step_time_s or 0.0 for step in counted]
    assert whole.steps == len(counted)
    assert whole.time_s == pytest.approx(sum(times))


def test_steps_are_profiled_on_request_more_than_once(
    make_config: Config, workspace: Path, tmp_path: Path
) -> None:
    requests = iter([0, 1, 0, 2])
    events = run(
        make_config(),
        tmp_path / "run",
        workspace,
        profile_requested=lambda: next(requests, 0),
    )
    spans = [(event.first_step, event.last_step) for event in of(events, "profile")]
    assert spans == [(3, 3), (5, 6)]
    assert [step.step for step in of(events, "step") if step.profiled] == [3, 5, 6]
    taken = [event.state for event in of(events, "phase") if event.name == "profile_request"]
    assert taken == ["end", "end"]


def test_a_training_that_ends_first_writes_what_it_has(
    make_config: Config, workspace: Path, tmp_path: Path
) -> None:
    events = run(make_config(profile={"steps": [5, 90]}), tmp_path / "run", workspace)
    (profile,) = of(events, "profile")
    assert (profile.first_step, profile.last_step) == (5, 6)


@pytest.mark.parametrize("steps", [[0, 3], [4, 3], [1, 101]])
def test_steps_that_cannot_be_profiled_are_named(make_config: Config, steps: list[int]) -> None:
    with pytest.raises(ValueError, match="at most 100 steps"):
        make_config(profile={"steps": steps})
