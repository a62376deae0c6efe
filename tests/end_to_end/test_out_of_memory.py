"""Workers with little memory: the run goes on with a setting that fits, and loses no step."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import llmops_kernel as llmops
from llmops_kernel.store.journal.training_view import TrainingView
from tests.tiny_training import write_rows

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(600)]

Submit = Callable[..., llmops.Run]

LIMITED = """\
import os
import resource

import psutil
import torch
from transformers import TrainerCallback

ROOM = 400_000_000


class Limited(TrainerCallback):
    # From each step on, so many rows of a forward pass fit into ROOM on this rank.
    fit = {fit}
    in_evaluation = {in_evaluation}

    def on_train_begin(self, args, state, control, model=None, **kwargs):
        if os.environ["RANK"] != "{rank}":
            return
        self.state = state
        used = psutil.Process().memory_info().vms
        resource.setrlimit(resource.RLIMIT_AS, (used + ROOM, resource.RLIM_INFINITY))
        model.register_forward_pre_hook(self.allocate, with_kwargs=True)

    def allocate(self, model, args, inputs):
        rows = len(inputs["input_ids"])
        step = self.state.global_step + 1
        fit = [rows for first, rows in self.fit if step >= first][-1]
        if not model.training:
            fit = self.in_evaluation
        torch.empty(int(0.9 * ROOM * rows / fit), dtype=torch.uint8)


def callbacks():
    return [Limited()]
"""


def limit(workspace: Path, *, fit: list[tuple[int, float]], in_evaluation: int, rank: int) -> None:
    write_rows(workspace, count=96)
    rows = (workspace / "rows.jsonl").read_text().splitlines(keepends=True)
    (workspace / "eval.jsonl").write_text("".join(rows[:9]))
    text = LIMITED.format(fit=fit, in_evaluation=in_evaluation, rank=rank)
    (workspace / "hooks.py").write_text(text)


def losses(run: llmops.Run) -> dict[int, float | None]:
    assert isinstance(run.view, TrainingView)
    return {step.step: step.loss for step in run.view.steps}


def texts(run: llmops.Run) -> list[str]:
    return [restart.cause for restart in run.view.restarts]


SETTINGS: dict[str, Any] = {
    "global_batch_size": 8,
    "max_steps": 10,
    "max_failures": 0,
    "data.eval": "eval.jsonl",
    "evaluation.every_steps": 5,
}


def test_a_run_that_runs_out_at_two_steps_and_in_an_evaluation_succeeds(
    submit: Submit, workspace: Path
) -> None:
    limit(workspace, fit=[(1, 4), (7, 2)], in_evaluation=2, rank=0)
    settings = {**SETTINGS, "num_workers": 1, "checkpoint.every_steps": None}
    run = submit(micro_batch_size=8, **settings)
    assert run.wait(300, raise_on_failure=False) == "SUCCEEDED", run.view.message
    assert list(losses(run)) == list(range(1, 11))
    assert [evaluation.step for evaluation in run.view.evaluations] == [5, 10]
    assert texts(run)[0] == (
        "out of memory at step 1 of worker rank 0; goes on with micro_batch_size=4"
        " (was 8, global batch kept)"
    )
    changes = [restart.changes for restart in run.view.restarts]
    assert changes == [
        {"training.micro_batch_size": 4},
        {"evaluation.micro_batch_size": 2},
        {"training.micro_batch_size": 2},
    ]
    assert [restart.from_step for restart in run.view.restarts] == [0, 5, 6]
    limit(workspace, fit=[(1, 8)], in_evaluation=8, rank=0)
    other = submit(micro_batch_size=2, **settings)
    assert other.wait(300, raise_on_failure=False) == "SUCCEEDED"
    assert losses(run) == pytest.approx(losses(other), rel=1e-5)
    evaluated = [evaluation.metrics["eval_loss"] for evaluation in run.view.evaluations]
    expected = [evaluation.metrics["eval_loss"] for evaluation in other.view.evaluations]
    assert evaluated == pytest.approx(expected, rel=1e-5)


def test_a_rank_that_runs_out_alone_leaves_no_other_one_waiting(
    submit: Submit, workspace: Path
) -> None:
    limit(workspace, fit=[(1, 4), (7, 1)], in_evaluation=8, rank=1)
    settings = {**SETTINGS, "checkpoint.every_steps": 5}
    run = submit(micro_batch_size=4, **settings)
    assert run.wait(300, raise_on_failure=False) == "SUCCEEDED", run.view.message
    assert list(losses(run)) == list(range(1, 11))
    assert texts(run) == [
        "out of memory at step 7 of worker rank 1; goes on with micro_batch_size=2"
        " (was 4, global batch kept)",
        "out of memory at step 7 of worker rank 1; goes on with micro_batch_size=1"
        " (was 2, global batch kept)",
    ]
    other = submit(micro_batch_size=1, **settings)
    assert other.wait(300, raise_on_failure=False) == "SUCCEEDED"
    assert losses(run) == pytest.approx(losses(other), rel=1e-5)


def test_a_run_that_shall_stop_fails_at_once(submit: Submit, workspace: Path) -> None:
    limit(workspace, fit=[(1, 1)], in_evaluation=1, rank=0)
    run = submit(micro_batch_size=2, on_oom="stop", **{**SETTINGS, "num_workers": 1})
    assert run.wait(300, raise_on_failure=False) == "FAILED"
    assert run.view.message.startswith("Out of memory")
    assert not run.view.restarts


KILLED = """\
import os
from pathlib import Path

import torch
from transformers import TrainerCallback

GROUP = Path("{group}")


class Limited(TrainerCallback):
    # The kernel kills rank 1 for more than one row in a forward pass of step 3.
    def on_train_begin(self, args, state, control, model=None, **kwargs):
        if os.environ["RANK"] == "1":
            self.state = state
            (GROUP / "cgroup.procs").write_text(str(os.getpid()))
            model.register_forward_pre_hook(self.allocate, with_kwargs=True)

    def allocate(self, model, args, inputs):
        if self.state.global_step == 2 and len(inputs["input_ids"]) > 1:
            torch.ones({room} * 2, dtype=torch.uint8)


def callbacks():
    return [Limited()]
"""
ROOM = 300_000_000


@pytest.fixture
def memory_group() -> Iterator[Path]:
    """A control group of the kernel (version 1) with little memory; needs root."""
    group = Path("/sys/fs/cgroup/memory") / f"llmops-test-{os.getpid()}"
    try:
        group.mkdir()
        (group / "memory.limit_in_bytes").write_text(str(ROOM))
    except OSError as error:
        pytest.skip(f"no control group can be made here: {error}")
    yield group
    (group / "memory.force_empty").write_text("0")
    group.rmdir()


def test_a_worker_that_the_kernel_kills_for_its_memory_is_no_failure(
    submit: Submit, workspace: Path, memory_group: Path
) -> None:
    write_rows(workspace, count=96)
    (workspace / "hooks.py").write_text(KILLED.format(group=memory_group, room=ROOM))
    run = submit(micro_batch_size=2, global_batch_size=4, max_steps=4, max_failures=0)
    assert run.wait(300, raise_on_failure=False) == "SUCCEEDED", run.view.message
    assert [restart.changes for restart in run.view.restarts] == [{"training.micro_batch_size": 1}]
    # The step is known from the other worker, if that has reported its loss of a peer by then.
    (text,) = texts(run)
    assert text.startswith("out of memory")
    assert "of worker rank 1; goes on with" in text
    assert list(losses(run)) == [1, 2, 3, 4]
