"""`llmops profile`: a training that runs profiles its next steps, on all of its workers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import llmops_kernel as llmops
from llmops_kernel.cli.main import main
from llmops_kernel.errors import ConfigError, RunStateError
from tests.end_to_end.conftest import at_step
from tests.end_to_end.script_runs import write
from tests.waiting import until

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.beside]


def test_the_next_steps_of_all_workers_are_profiled(
    submit: Callable[..., llmops.Run], capsys: pytest.CaptureFixture[str]
) -> None:
    run = submit(training={"max_steps": 200})
    until(at_step(run, 3))
    run.profile(2)
    until(lambda: run.view.profiles)
    first = run.view.profiles[0]
    assert first.last_step == first.first_step + 1
    files = sorted(path.name for path in Path(first.path).iterdir())
    assert files == ["rank-0.json.gz", "rank-1.json.gz"]
    assert sorted(rank for group in first.groups for rank in group.ranks) == [0, 1]
    until(lambda: run.view.profiling is None)
    with pytest.raises(SystemExit) as ended:
        main(["profile", run.id, "--steps", "1"])
    assert ended.value.code == 0
    text = capsys.readouterr().out
    assert "aten::" in text
    assert "ui.perfetto.dev" in text
    second = run.view.profiles[1]
    assert second.first_step == second.last_step > first.last_step
    assert [step.step for step in run.view.steps if step.profiled] == [
        first.first_step, first.last_step, second.first_step,
    ]  # fmt: skip
    with pytest.raises(ConfigError, match="profile 0 steps"):
        run.profile(0)
    run.stop()
    run.wait()
    assert run.output is None  # A profile is no result.
    with pytest.raises(RunStateError, match="has ended"):
        run.profile(1)
    assert run.view.profiling is None


SCRIPT = """
    import time
    import torch
    from llmops_kernel import track

    model = torch.nn.Linear(64, 1)
    track.start(total_steps=2000, model=model)
    for step in range(1, 2001):
        loss = model(torch.randn(8, 64)).sum()
        loss.backward()
        time.sleep(0.1)
        track.step(loss=loss, total_tokens=16)
        if track.should_stop():
            break
"""


def test_a_script_profiles_the_same_steps_on_its_workers(
    cluster: llmops.Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = cluster.submit(write(tmp_path, SCRIPT), num_workers=2)
    until(at_step(run, 2))
    with pytest.raises(SystemExit) as ended:
        main(["profile", run.id, "--steps", "20"])
    assert ended.value.code == 0
    assert "Where ranks stood" in capsys.readouterr().out
    run.stop()
    run.wait()
    (profile,) = run.view.profiles
    assert profile.last_step == profile.first_step + 19
    files = sorted(path.name for path in Path(profile.path).iterdir())
    assert files == ["rank-0.json.gz", "rank-1.json.gz"]
    assert sorted(rank for group in profile.groups for rank in group.ranks) == [0, 1]
    steps = [step.step for step in run.view.steps if step.profiled]
    assert steps == [*range(profile.first_step, profile.last_step + 1)]
