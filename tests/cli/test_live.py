from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from llmops_kernel.cli.runs.live import follow_in_terminal
from llmops_kernel.cli.runs.live_parts import own_frames, screen
from llmops_kernel.errors import ClusterUnreachableError
from llmops_kernel.metrics.events import PhaseEvent
from llmops_kernel.store.paths import RunFolder
from tests.widgets.folder_run import FolderRun, FolderSource
from tests.widgets.simulate import Simulation


@pytest.fixture
def run(tmp_path: Any) -> Simulation:
    return Simulation(RunFolder(tmp_path / "run"))


def console(*, terminal: bool, width: int = 100) -> Console:
    return Console(file=io.StringIO(), force_terminal=terminal, width=width, color_system=None)


def reported(to: Console) -> str:
    assert isinstance(to.file, io.StringIO)
    return to.file.getvalue()


@pytest.mark.parametrize("terminal", [True, False])
def test_ends_with_waterfall_figures_and_outputs(run: Simulation, terminal: bool) -> None:
    run.whole()
    to = console(terminal=terminal)
    assert follow_in_terminal(FolderRun(run.folder), console=to, clock=run.clock) == "SUCCEEDED"
    text = reported(to)
    assert "Start-up, submit to first step: 11.3 s" in text
    assert "step 120 of 120" in text
    assert "field accuracy" in text
    assert "adapter" in text


@pytest.mark.parametrize("traceback", [True, False])
def test_failure_shows_file_line_remedy_and_the_traceback_where_asked(
    run: Simulation, traceback: bool
) -> None:
    run.start_up("data")
    run.fail()
    to = console(terminal=False)
    state = follow_in_terminal(
        FolderRun(run.folder), console=to, clock=run.clock, traceback=traceback
    )
    assert state == "FAILED"
    text = reported(to)
    assert "HookError · menu_hooks.py:31 · ranks 0-1" in text
    assert text.count("Try: check rows whose cuisine is null") == 1
    assert text.count("Traceback (most recent call last)") == int(traceback)
    assert ("or --traceback" in text) is not traceback


def test_of_a_traceback_the_users_own_lines_are_shown() -> None:
    folder = "/tmp/s/runtime_resources/working_dir_files/_ray_pkg_0a1b"
    text = f"""Traceback (most recent call last):
  File "/site-packages/llmops_kernel/train/loop.py", line 7, in run
    work()
  File "{folder}/parts/train.py", line 3, in work
    load(rows)
    ^^^^^^^^^^
  File "/site-packages/torch/nn.py", line 1, in call
    raise ValueError("no rows")
ValueError: no rows"""
    assert own_frames(text) == [
        '  File "parts/train.py", line 3, in work',
        "    load(rows)",
        "    ^^^^^^^^^^",
    ]


def test_screen_ticks_before_the_first_step(run: Simulation) -> None:
    run.start_up("model_load")
    run.sleep(2.5)  # type: ignore[misc]
    source = FolderRun(run.folder).follower()
    source.poll()
    to = console(terminal=False)
    to.print(screen(source.view, run.record(), now_s=run.clock()))
    assert "… model load" in reported(to)
    assert "2.5 s" in reported(to)
    assert "Loading the model…" in reported(to)


@pytest.mark.parametrize("terminal", [True, False])
def test_warm_or_cold_is_never_silent(run: Simulation, terminal: bool) -> None:
    run.start_up("model_load")
    run.processes(cold="the fork server was gone")
    to = console(terminal=terminal, width=120)
    follow_in_terminal(FolderRun(run.folder), console=to, clock=run.clock, timeout_s=0)
    assert "processes: 2 warm, 1 cold (rank 1): the fork server was gone" in reported(to)
    run.fail()
    follow_in_terminal(FolderRun(run.folder), console=to, clock=run.clock)
    assert reported(to).count("processes: 2 warm, 1 cold") >= 2


def test_plain_lines_come_every_few_seconds_and_stop_at_the_time_out(run: Simulation) -> None:
    run.start_up()
    run.start()
    steps = run.train()

    def sleep(seconds: float) -> None:
        for _ in range(4):
            next(steps, None)
        run.sleep(0.4)  # type: ignore[misc]

    to = console(terminal=False, width=200)
    state = follow_in_terminal(
        FolderRun(run.folder), console=to, timeout_s=12.0, sleep=sleep, clock=run.clock
    )
    assert state == "RUNNING"
    lines = reported(to).splitlines()
    assert lines[0].startswith("lora-260901-101500-a1b2: SmolLM2")
    assert "model load done: 134.5 M parameters" in lines
    assert any(line.startswith("evaluation at step 40: loss") for line in lines)
    assert sum(line.startswith("Running, step") for line in lines) == 1


def test_a_long_phase_is_one_line_of_a_log(run: Simulation) -> None:
    run.start_up()
    run.start()
    for _ in zip(range(5), run.train(), strict=False):
        pass
    run.worker.emit(PhaseEvent(name="evaluate", state="begin"))
    to = console(terminal=False, width=200)
    follow_in_terminal(
        FolderRun(run.folder), console=to, timeout_s=120.0, sleep=run.sleep, clock=run.clock
    )
    progress = [line for line in reported(to).splitlines() if line.startswith("Running")]
    assert len(progress) == 1, progress
    assert "step 5 of 120" in progress[0]


def test_progress_of_a_log_comes_each_ten_seconds_with_news(run: Simulation) -> None:
    run.start_up()
    run.start()
    steps = run.train()

    def sleep(seconds: float) -> None:
        next(steps, None)
        run.sleep(0.95)  # type: ignore[misc]

    to = console(terminal=False, width=200)
    follow_in_terminal(
        FolderRun(run.folder), console=to, timeout_s=35.0, sleep=sleep, clock=run.clock
    )
    progress = [line for line in reported(to).splitlines() if line.startswith("Running, step")]
    assert len(progress) == 3, progress


class Silent(FolderRun):
    """Its cluster does not answer the first two polls."""

    def follower(self) -> FolderSource:
        source, polls = super().follower(), iter(range(1000))
        read = source.poll

        def poll() -> Any:
            if next(polls) < 2:
                raise ClusterUnreachableError("the dashboard does not answer")
            return read()

        source.poll = poll  # type: ignore[method-assign]
        return source


def test_a_silent_cluster_is_reported_and_waited_for(run: Simulation) -> None:
    run.whole()
    to = console(terminal=False)
    state = follow_in_terminal(
        Silent(run.folder), console=to, sleep=lambda seconds: None, clock=run.clock
    )
    assert state == "SUCCEEDED"
    assert "the dashboard does not answer" in reported(to)
    assert "The cluster is reachable again." in reported(to)


def test_narrow_terminal_keeps_the_bars(run: Simulation) -> None:
    run.whole()
    to = console(terminal=False, width=60)
    follow_in_terminal(FolderRun(run.folder), console=to, clock=run.clock)
    assert all(len(line) <= 60 for line in reported(to).splitlines()[-60:] if "━" in line)


def test_figures_that_are_not_known_are_named_in_one_line(run: Simulation) -> None:
    """Each had a line of its own with a dash and what it would mean: 4 of 11."""
    run.whole()
    to = console(terminal=False)
    follow_in_terminal(FolderRun(run.folder), console=to, clock=run.clock)
    figures = reported(to).partition("Figures")[2].partition("Evaluations")[0].splitlines()
    (unknown,) = [line for line in figures if line.startswith("not known")]
    assert "cost" in unknown
    dashes = [line.split()[0] for line in figures if "  –" in line]
    assert dashes in ([], ["MFU"])
