"""NaN and infinity: the run ends FAILED, skips the step or continues, as training.on_nan says."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from llmops_kernel.errors import DivergedError
from llmops_kernel.metrics.events import AnyEvent
from llmops_kernel.store.journal.journal import FolderTail, JournalWriter
from llmops_kernel.train.context import WorkerContext
from llmops_kernel.train.data.examples import Example
from llmops_kernel.train.divergence import (
    MAX_SKIPPED_IN_A_ROW,
    DivergenceGuard,
    LossSpikes,
    StepBatches,
)
from tests.train.nan_hooks import write_nan_hooks
from tests.train.test_loop import of, run

NAN, INF = math.nan, math.inf
Config = Callable[..., Any]


class Guarded:
    """A guard with a real journal."""

    def __init__(self, config: Any, folder: Path) -> None:
        self._folder = folder / "journal"
        journal = JournalWriter([self._folder], stream="1-worker-1", attempt=1)
        context = WorkerContext(run_id="r1", folder=folder, workspace=folder, journal=journal)
        self.guard = DivergenceGuard(context, config)

    def messages(self) -> list[str]:
        return [e.message for e in FolderTail(self._folder).read() if e.kind == "warning"]


@pytest.fixture
def guarded(make_config: Config, tmp_path: Path) -> Callable[[str], Guarded]:
    def make(on_nan: str) -> Guarded:
        config = make_config(training={"on_nan": on_nan}, optimizer={"learning_rate": 0.1})
        return Guarded(config, tmp_path)

    return make


def test_a_run_stops_unless_the_config_says_otherwise(make_config: Config) -> None:
    assert make_config().training.on_nan == "stop"


@pytest.mark.parametrize(
    ("loss", "grad_norm", "broken"),
    [
        (NAN, 1.0, "The loss is nan"),
        (INF, 1.0, "The loss is inf"),
        (-INF, None, "The loss is -inf"),
        (5.5, NAN, "The gradient norm is nan (the loss is 5.5)"),
        (5.5, INF, "The gradient norm is inf"),
    ],
)
def test_stop_names_the_step_and_a_run_to_submit(
    guarded: Callable[[str], Guarded], loss: float, grad_norm: float | None, broken: str
) -> None:
    guard = guarded("stop").guard
    guard.check_step(2, loss=5.0, grad_norm=1.0)
    with pytest.raises(DivergedError) as caught:
        guard.check_step(3, loss=loss, grad_norm=grad_norm)
    assert caught.value.message.startswith(broken)
    assert "at step 3." in caught.value.message
    assert "not exported" in caught.value.message
    assert "optimizer.learning_rate (was 0.1)" in caught.value.remedy
    assert "`llmops resubmit r1 optimizer.learning_rate=0.01`" in caught.value.remedy


@pytest.mark.parametrize("grad_norm", [None, 0.0, 1e30])
def test_finite_numbers_are_no_divergence(
    guarded: Callable[[str], Guarded], grad_norm: float | None
) -> None:
    one = guarded("stop")
    one.guard.check_step(1, loss=1e30, grad_norm=grad_norm)
    one.guard.check_evaluation(1, {"eval_loss": 3.0, "accuracy": NAN})
    one.guard.check_evaluation(1, {})
    one.guard.check_end(1)
    assert one.messages() == []


def test_an_evaluation_that_is_not_finite_stops_the_run(
    guarded: Callable[[str], Guarded],
) -> None:
    with pytest.raises(DivergedError, match="The evaluation loss is nan after step 4"):
        guarded("stop").guard.check_evaluation(4, {"eval_loss": NAN})


def test_skip_warns_once_and_counts(guarded: Callable[[str], Guarded]) -> None:
    one = guarded("skip")
    for step in range(1, 11):
        bad = step in (3, 4, 7)
        one.guard.check_step(step, loss=NAN if bad else 5.0, grad_norm=NAN if bad else 1.0)
    one.guard.check_end(10)
    first, last = one.messages()
    assert "at step 3" in first
    assert "weights are left as they are" in first
    assert last.startswith("3 of 10 steps were skipped")


def test_skip_gives_up_when_nothing_recovers(guarded: Callable[[str], Guarded]) -> None:
    guard = guarded("skip").guard
    for step in range(1, MAX_SKIPPED_IN_A_ROW):
        guard.check_step(step, loss=NAN, grad_norm=NAN)
    with pytest.raises(DivergedError, match=r"at step 10; 10 steps in a row were skipped"):
        guard.check_step(MAX_SKIPPED_IN_A_ROW, loss=NAN, grad_norm=NAN)


@pytest.mark.parametrize("on_nan", ["skip", "continue"])
def test_a_run_whose_last_step_or_evaluation_is_not_finite_fails(
    guarded: Callable[[str], Guarded], on_nan: str
) -> None:
    guard = guarded(on_nan).guard
    guard.check_step(3, loss=NAN, grad_norm=1.0)
    guard.check_step(4, loss=5.0, grad_norm=1.0)
    guard.check_end(4)
    guard.check_evaluation(4, {"eval_loss": INF})
    with pytest.raises(DivergedError, match=r"evaluation loss is inf .*first seen at step 3"):
        guard.check_end(4)


BROKEN_MODEL = """
from transformers import AutoModelForCausalLM
from llmops_kernel.models.catalogue import prepare

def build_model(config):
    model = AutoModelForCausalLM.from_pretrained(str(prepare("tiny-llama")))
    model.model.norm.weight.data.fill_(float("nan"))
    return model
"""


def train(config: Any, folder: Path, workspace: Path) -> tuple[list[AnyEvent], str]:
    """Train in this process; return the journal and the message of a DivergedError."""
    message = ""
    try:
        run(config, folder, workspace)
    except DivergedError as error:
        message = error.message
    return FolderTail(folder / "journal").read(), message


@pytest.mark.slow
@pytest.mark.beside
def test_an_absurd_learning_rate_ends_the_run_and_exports_nothing(
    make_config: Config, workspace: Path, tmp_path: Path
) -> None:
    config = make_config(
        method="full",
        optimizer={"learning_rate": 1e30, "lr_scheduler_type": "constant"},
        training={"max_steps": 20},
        checkpoint={"every_steps": 1},
        data={"eval": "train.jsonl", "max_eval_rows": 2},
    )
    events, message = train(config, tmp_path / "run", workspace)
    last = of(events, "step")[-1]
    assert not math.isfinite(last.loss) or not math.isfinite(last.grad_norm)
    assert last.step < 20
    assert f"at step {last.step}." in message
    assert not of(events, "output")
    assert not (tmp_path / "run" / "output").exists()
    # A checkpoint of broken weights is no place to resume from.
    assert [event.step for event in of(events, "checkpoint")] == list(range(1, last.step))


@pytest.mark.slow
@pytest.mark.beside
def test_skipped_steps_change_no_weight(
    make_config: Config, workspace: Path, tmp_path: Path
) -> None:
    write_nan_hooks(workspace, steps=(3, 4))
    sections = {"method": "full", "hooks": "hooks.py", "optimizer": {"learning_rate": 0.01}}
    config = make_config(**sections, training={"max_steps": 12, "on_nan": "skip"})
    events, message = train(config, tmp_path / "run", workspace)
    assert message == ""
    losses = {event.step: event.loss for event in of(events, "step")}
    assert [step for step, loss in losses.items() if math.isnan(loss)] == [3, 4]
    assert losses[12] < losses[1]
    assert any("2 of 12 steps were skipped" in event.message for event in of(events, "warning"))
    assert of(events, "output")


@pytest.mark.slow
@pytest.mark.beside
def test_continue_fails_at_the_end_when_the_weights_are_broken(
    make_config: Config, workspace: Path, tmp_path: Path
) -> None:
    write_nan_hooks(workspace, steps=(3,))
    config = make_config(
        method="full", hooks="hooks.py", training={"max_steps": 6, "on_nan": "continue"}
    )
    events, message = train(config, tmp_path / "run", workspace)
    losses = [event.loss for event in of(events, "step")]
    assert [math.isnan(loss) for loss in losses] == [False, False, True, True, True, True]
    assert "at the last step, 6 (first seen at step 3)" in message
    assert not of(events, "output")


@pytest.mark.slow
@pytest.mark.beside
def test_a_broken_model_stops_at_its_first_step_which_is_journalled(
    make_config: Config, workspace: Path, tmp_path: Path
) -> None:
    (workspace / "hooks.py").write_text(BROKEN_MODEL)
    config = make_config(method="full", hooks="hooks.py", training={"max_steps": 2})
    events, message = train(config, tmp_path / "run", workspace)
    (step,) = of(events, "step")
    assert math.isnan(step.loss)
    assert message.startswith("The loss is nan at step 1.")


@pytest.mark.slow
@pytest.mark.beside
def test_an_evaluation_of_a_broken_model_stops_before_the_first_step(
    make_config: Config, workspace: Path, tmp_path: Path
) -> None:
    (workspace / "hooks.py").write_text(BROKEN_MODEL)
    config = make_config(
        method="full",
        hooks="hooks.py",
        data={"eval": "train.jsonl", "max_eval_rows": 2},
        evaluation={"at_start": True},
    )
    events, message = train(config, tmp_path / "run", workspace)
    (evaluation,) = of(events, "eval")
    assert math.isnan(evaluation.metrics["eval_loss"])
    assert message.startswith("The evaluation loss is nan after step 0.")
    assert not of(events, "step")


# --- Which rows it was ---


POISON = """
from transformers import AutoModelForCausalLM, AutoTokenizer
from llmops_kernel.models.catalogue import prepare

def build_model(config):
    folder = str(prepare("tiny-llama"))
    model = AutoModelForCausalLM.from_pretrained(folder)
    poison = AutoTokenizer.from_pretrained(folder)("{text}")["input_ids"]
    seen = []

    def look(module, arguments, named):
        rows = named["input_ids"].tolist()
        seen[:] = [any(row[: len(poison)] == poison for row in rows)]

    model.register_forward_pre_hook(look, with_kwargs=True)
    model.lm_head.register_forward_hook(
        lambda module, inputs, output: output * (float("nan") if seen[0] else 1.0)
    )
    return model
"""


@pytest.mark.slow
@pytest.mark.beside
def test_the_row_whose_loss_is_nan_is_named_by_its_number_and_text(
    make_config: Config, workspace: Path, tmp_path: Path
) -> None:
    texts = [f"{number} apples are in the {number}. basket" for number in range(1, 33)]
    texts[20] = "this one is poison for the model"
    lines = "".join(json.dumps({"text": text}) + "\n" for text in texts)
    (workspace / "poison.jsonl").write_text(lines)
    (workspace / "hooks.py").write_text(POISON.replace("{text}", "this one is poison"))
    config = make_config(
        method="full",
        hooks="hooks.py",
        data={"train": "poison.jsonl"},
        training={"max_steps": 8, "global_batch_size": 4, "micro_batch_size": 1},
        performance="off",
    )
    events, message = train(config, tmp_path / "run", workspace)
    step = of(events, "step")[-1].step
    assert f"at step {step}." in message
    assert "The batch: rank 0, micro batch" in message
    assert "of 4: row 21 “this one is poison for the model”" in message
    assert "apples" not in message


def test_the_worst_micro_batch_is_the_one_that_is_not_finite_else_the_highest() -> None:
    batches = StepBatches()
    rows = [Example([1, 5, 6], [1, 5, 6]), Example([1, 7], [1, 7]), Example([1, 8], [1, 8])]
    assert batches.worst(rows, Words()) == (False, 0.0, "")
    padded = {"input_ids": torch.tensor([[1, 8, 0], [1, 7, 0]])}
    batches.add({**padded, "attention_mask": torch.tensor([[1, 1, 0], [1, 1, 0]])}, 3.0)
    joined = torch.tensor([[0, 1, 2, 0, 1]])
    packed = {"input_ids": torch.tensor([[1, 5, 6, 1, 7]]), "position_ids": joined}
    batches.add(packed, torch.tensor(9.0))
    first = batches.worst(rows, Words())
    assert first == (False, 9.0, "micro batch 2 of 2: row 1 “1 5 6”, row 2 “1 7”")
    batches.add({**padded, "attention_mask": torch.ones(2, 3)}, torch.tensor(NAN))
    assert batches.worst(rows, Words())[0] is True
    assert batches.worst(iter(rows), Words())[2] == "micro batch 3 of 3: “1 8 0”, “1 7 0”"


class Words:
    """A tokenizer that writes numbers."""

    def decode(self, ids: list[int], *, skip_special_tokens: bool) -> str:
        return " ".join(map(str, ids))


def test_a_loss_that_jumps_is_told_once_with_the_rows(guarded: Callable[[str], Guarded]) -> None:
    one = guarded("stop")
    for step in range(1, 61):
        loss = 40.0 if step in (30, 33) else 5.0 + 0.1 * (step % 3)
        one.guard.check_step(step, loss=loss, grad_norm=1.0)
    [message] = one.messages()
    assert message.startswith("The loss jumps to 40 at step 30;")
    assert "is 5.1." in message


def test_noise_and_a_falling_loss_are_no_spike() -> None:
    spikes, values = LossSpikes(), random.Random(3)
    assert {spikes.add(8.0 * 0.99**step + values.gauss(0, 0.3)) for step in range(400)} == {None}
    assert {LossSpikes().add(loss) for loss in (5.0, 500.0)} == {None}  # Too few to compare with.
