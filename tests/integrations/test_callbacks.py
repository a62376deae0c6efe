"""The callbacks for Transformers and Lightning, in a run of their own without Ray."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.train.script.conftest import ScriptRun
from tests.waiting import until


@pytest.fixture
def run(tmp_path: Path) -> Iterator[ScriptRun]:
    with closing(ScriptRun(tmp_path)) as run:
        yield run


TRANSFORMERS = """
    import sys, torch
    from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments
    from llmops_kernel import track
    from llmops_kernel.integrations.transformers import TrackCallback

    config = LlamaConfig(hidden_size=32, intermediate_size=64, num_hidden_layers=2,
                         num_attention_heads=2, vocab_size=100)
    row = {"input_ids": torch.arange(16), "labels": torch.arange(16),
           "attention_mask": torch.tensor([1] * 12 + [0] * 4)}
    arguments = TrainingArguments(
        "out", max_steps=int(sys.argv[1]), per_device_train_batch_size=2, report_to="none",
        use_cpu=True, save_strategy="no", eval_strategy="steps", eval_steps=4, disable_tqdm=True)
    Trainer(LlamaForCausalLM(config), arguments, train_dataset=[row] * 8, eval_dataset=[row] * 2,
            callbacks=[TrackCallback()]).train(resume_from_checkpoint=track.resume_checkpoint())
"""


def test_transformers_reports_steps_tokens_flops_and_evaluations(run: ScriptRun) -> None:
    run.write(TRANSFORMERS)
    assert run.run("4") == 0, run.output
    steps: list[Any] = run.events("step")
    assert [step.step for step in steps] == [1, 2, 3, 4]
    assert [step.tokens for step in steps] == [24] * 4  # 2 rows of 12; padding is not counted.
    assert all(step.flops > 0 and step.loss > 0 for step in steps)
    [evaluation] = run.events("eval")
    assert evaluation.step == 4
    assert set(evaluation.metrics) == {"eval_loss"}
    start: Any = run.events("start")[-1]
    assert (start.total_steps, start.global_batch_size) == (4, 2)


LIGHTNING = """
    import sys, torch, lightning
    from torch.utils.data import DataLoader, TensorDataset
    from llmops_kernel import track
    from llmops_kernel.integrations.lightning import TrackCallback

    class Regression(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(4, 1)

        def training_step(self, batch, index):
            self.log("accuracy", 0.5 + self.global_step)
            return torch.nn.functional.mse_loss(self.layer(batch[0]), batch[1])

        def validation_step(self, batch, index):
            self.log("val_loss", torch.nn.functional.mse_loss(self.layer(batch[0]), batch[1]))

        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters(), lr=0.05)

    torch.manual_seed(0)
    inputs = torch.randn(64, 4)
    data = DataLoader(TensorDataset(inputs, inputs.sum(1, keepdim=True)), batch_size=8)
    lightning.Trainer(
        max_steps=int(sys.argv[1]), max_epochs=-1, accelerator="cpu", logger=False,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
        callbacks=[TrackCallback(tokens=lambda batch: len(batch[0]),
                                 flops=lambda batch: 3e3 * len(batch[0]))],
    ).fit(Regression(), data, data, ckpt_path=track.resume_checkpoint())
"""


def test_lightning_reports_what_the_module_logs_and_its_validations(
    run: ScriptRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LLMOPS_PEAK_TFLOPS", "10")  # Of most CPUs it is not known.
    run.write(LIGHTNING)
    assert run.run("10") == 0, run.output
    steps: list[Any] = run.events("step")
    assert [step.step for step in steps] == list(range(1, 11))
    assert [step.values for step in steps] == [{"accuracy": n + 0.5} for n in range(10)]
    assert all(step.loss > 0 and step.tokens == 8 for step in steps)
    assert all(step.flops == 24e3 and 0 < step.mfu < 1 for step in steps[1:])
    [evaluation] = run.events("eval")
    assert (evaluation.step, set(evaluation.metrics)) == (8, {"val_loss"})


@pytest.mark.parametrize("script", [TRANSFORMERS, LIGHTNING])
def test_a_stop_saves_a_checkpoint_and_a_retry_resumes_there(run: ScriptRun, script: str) -> None:
    run.write(script)
    process = run.start("100000")
    until(lambda: len(run.events("step")) >= 20 or process.poll() is not None)
    assert process.poll() is None, process.communicate()[0]
    process.send_signal(signal.SIGTERM)
    assert run.finish(process) == 0, run.output
    [end] = run.events("end")
    assert end.message == f"Stopped at step {end.last_step}, after saving a checkpoint."
    first: Any = run.events("step")[0]
    assert run.run(str(end.last_step + 2)) == 0, run.output
    steps: list[Any] = run.events("step")
    assert steps[0].loss < first.loss, "the weights are those of the checkpoint"
    assert [step.step for step in steps] == [end.last_step + 1, end.last_step + 2]


def test_outside_a_run_the_callback_changes_nothing(tmp_path: Path) -> None:
    import transformers

    from llmops_kernel.integrations.transformers import TrackCallback

    arguments = transformers.TrainingArguments(str(tmp_path), report_to="none", use_cpu=True)
    control = transformers.TrainerControl()
    callback = TrackCallback()
    state = transformers.TrainerState()
    callback.on_train_begin(arguments, state, control)
    callback.on_step_end(arguments, state, control)
    assert arguments.include_num_input_tokens_seen == "no"
    assert not control.should_log
    assert not control.should_training_stop
