"""`training.micro_batch_size: auto` on two workers with little memory."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import llmops_kernel as llmops
from llmops_kernel.store.journal.training_view import TrainingView
from tests.end_to_end.conftest import workers
from tests.end_to_end.test_out_of_memory import limit
from tests.waiting import until

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(600)]

Submit = Callable[..., llmops.Run]
SETTINGS: dict[str, Any] = {
    "micro_batch_size": "auto",
    "global_batch_size": 32,
    "max_steps": 2,
    "max_failures": 0,
    "checkpoint.every_steps": None,
}


def limited(workspace: Path, *, fit: float, extra: str = "") -> None:
    """Let so many rows fit on rank 1; no other test has the same hooks, so no answer is kept."""
    limit(workspace, fit=[(1, fit)], in_evaluation=64, rank=1)
    hooks = workspace / "hooks.py"
    hooks.write_text(f"{hooks.read_text()}\n# {uuid.uuid4()}\n{extra}")


def search_words(run: llmops.Run) -> str:
    return next(span.detail for span in run.view.phases() if span.name == "batch_search")


def test_the_largest_that_fits_is_searched_for_once(submit: Submit, workspace: Path) -> None:
    limited(workspace, fit=5)
    run = submit(**SETTINGS)
    assert run.wait(300, raise_on_failure=False) == "SUCCEEDED", run.view.message
    assert isinstance(run.view, TrainingView)
    assert re.fullmatch(
        r"micro_batch_size=4, found in \d+\.\d s with 2 probes; 8 ran out of memory",
        search_words(run),
    )
    assert run.view.start is not None
    assert run.view.start.micro_batch_size == 4
    assert not run.view.restarts
    assert [step.step for step in run.view.steps] == [1, 2]
    again = submit(**SETTINGS)
    assert again.wait(300, raise_on_failure=False) == "SUCCEEDED", again.view.message
    assert search_words(again) == "micro_batch_size=4, found before"
    other = submit(**{**SETTINGS, "micro_batch_size": 4})
    assert other.wait(300, raise_on_failure=False) == "SUCCEEDED", other.view.message
    assert isinstance(other.view, TrainingView)
    losses = [step.loss for step in run.view.steps]
    assert losses == pytest.approx([step.loss for step in other.view.steps], rel=1e-6)


@pytest.mark.nightly
def test_an_answer_that_later_runs_out_is_corrected(submit: Submit, workspace: Path) -> None:
    limit(workspace, fit=[(1, 4), (9, 2)], in_evaluation=64, rank=1)
    with (workspace / "hooks.py").open("a") as hooks:
        hooks.write(f"# {uuid.uuid4()}\n")
    settings = {**SETTINGS, "global_batch_size": 16, "max_steps": 10}
    run = submit(**settings)
    assert run.wait(300, raise_on_failure=False) == "SUCCEEDED", run.view.message
    assert search_words(run).startswith("micro_batch_size=4, found in ")
    assert [restart.changes for restart in run.view.restarts] == [{"training.micro_batch_size": 2}]
    again = submit(**settings)
    assert again.wait(300, raise_on_failure=False) == "SUCCEEDED", again.view.message
    assert search_words(again) == "micro_batch_size=2, found before"
    assert not again.view.restarts


DIES = """
class Dies(TrainerCallback):
    # Rank 1 is killed in the first probe only: its process leaves a mark.
    def on_step_begin(self, args, state, control, **kwargs):
        mark = "{mark}"
        if os.environ["RANK"] == "1" and not os.path.exists(mark):
            open(mark, "w").close()
            os.kill(os.getpid(), 9)


limited = callbacks


def callbacks():
    return [Dies(), *limited()]
"""


def test_a_worker_killed_while_it_probes_leaves_nothing_behind(
    submit: Submit, workspace: Path, tmp_path: Path
) -> None:
    limited(workspace, fit=5, extra=DIES.format(mark=tmp_path / "killed"))
    run = submit(**{**SETTINGS, "max_failures": 1})
    assert run.wait(300, raise_on_failure=False) == "SUCCEEDED", run.view.message
    assert (tmp_path / "killed").exists()
    assert search_words(run).startswith("micro_batch_size=4, found in ")
    assert [restart.failures_left for restart in run.view.restarts] == [0]
    (tmp_path / "killed").unlink()
    limited(workspace, fit=5, extra=DIES.format(mark=tmp_path / "killed"))
    failed = submit(**SETTINGS)
    assert failed.wait(300, raise_on_failure=False) == "FAILED"
    assert "No restart is left (training.max_failures=0)" in failed.view.message
    assert not workers()


def test_a_run_of_which_nothing_fits_does_what_others_do(submit: Submit, workspace: Path) -> None:
    limited(workspace, fit=0.5)
    run = submit(**SETTINGS)
    assert run.wait(300, raise_on_failure=False) == "FAILED"
    assert run.view.message.startswith("Out of memory")
    words, _, time = search_words(run).partition(": in ")
    assert words == "micro_batch_size=1, which ran out of memory when it was tried"
    assert re.fullmatch(r"\d+\.\d s with 1 probe", time)
    changes = [restart.changes for restart in run.view.restarts]
    assert changes == [{"parallelism.gradient_checkpointing": True}]


def test_a_stop_while_it_searches_ends_the_run(submit: Submit, workspace: Path) -> None:
    limited(workspace, fit=5)
    run = submit(**SETTINGS)
    until(lambda: any(span.name == "batch_search" for span in run.view.phases()), timeout_s=120)
    run.stop()
    assert run.wait(120, raise_on_failure=False) == "STOPPED", run.view.message
    assert run.view.message == "Stopped before the first step."
    assert "micro_batch_size" not in search_words(run)
