"""Reports of a script as the journal shows them."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from llmops_kernel.metrics.events import CheckpointEvent, Event, StartEvent, StepEvent
from llmops_kernel.metrics.flops import training_flops
from llmops_kernel.metrics.shapes import ModelShape
from llmops_kernel.track.model import FlopsOf, describe_model
from llmops_kernel.track.tracker import Peak, StoredCheckpoint, Tracker

PEAK = Peak("a CPU", 1e10, "measured")


class Process:
    """A worker that writes into a list."""

    def __init__(self, *, rank: int = 0, world_size: int = 1) -> None:
        self.rank, self.world_size = rank, world_size
        self.events: list[Event] = []
        self.known_peak = PEAK
        self.stop = False
        self.stopped_at: int | None = None
        self.newest: StoredCheckpoint | None = None
        self.flops: FlopsOf | None = None
        self.counted: list[str] = []
        self.profiled: set[int] = set()
        self.beats: list[tuple[int, float | None, bool]] = []

    def emit(self, event: Event) -> None:
        self.events.append(event)

    def should_stop(self) -> bool:
        return self.stop

    def note_stop_request(self, step: int) -> None:
        self.stopped_at = step

    def peak(self, dtype: str, device: str) -> Peak:
        assert device == "cpu"
        return self.known_peak

    def beat(self, step: int, *, time_s: float | None, data_s: float | None, is_last: bool) -> None:
        self.beats.append((step, time_s, is_last))

    @property
    def is_profiled(self) -> bool:
        return self.beats[-1][0] in self.profiled

    def end_step(self, step: int, *, time_s: float | None, is_last: bool) -> bool:
        return step in self.profiled

    def flops_of(self, model: Any) -> FlopsOf | None:
        self.counted.append(type(model).__name__)
        return self.flops

    def host_memory_bytes(self) -> int | None:
        return None

    def keep_checkpoint(self, path: Path, *, step: int, keep: int) -> CheckpointEvent:
        if not path.exists():
            raise FileNotFoundError(path)
        return CheckpointEvent(step=step, path=str(path))

    def newest_checkpoint(self) -> StoredCheckpoint | None:
        return self.newest

    def agreed_checkpoint(self) -> StoredCheckpoint | None:
        return self.newest

    def start_facts(self) -> dict[str, Any]:
        return {"hosts": ("here",)}

    def of(self, kind: str) -> list[Any]:
        return [event for event in self.events if getattr(event, "kind", "") == kind]


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        self.now_s += 1
        return self.now_s


def _tiny(kind: str = "LlamaForCausalLM") -> Any:
    import transformers

    config = transformers.LlamaConfig(
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        vocab_size=100,
    )
    return getattr(transformers, kind)(config)


def test_mfu_comes_from_the_model_and_its_tokens() -> None:
    process, model = Process(), _tiny()
    tracker = Tracker(process, clock=Clock())
    tracker.start(total_steps=3, model=model, sequence_length=16)
    tracker.step(loss=torch.tensor(2.5), tokens=64)
    [start], [step] = process.of("start"), process.of("step")
    shape = ModelShape.from_config(model.config.to_dict())
    assert shape is not None
    expected = training_flops(shape, tokens=64, sum_squared_lengths=64 * 16)
    assert isinstance(start, StartEvent)
    assert (start.total_steps, start.first_step, start.dtype) == (3, 1, "float32")
    assert start.num_params == sum(p.numel() for p in model.parameters())
    assert isinstance(step, StepEvent)
    assert step.loss == 2.5
    assert step.flops == expected
    assert step.mfu == pytest.approx(expected / (step.step_time_s or 0) / 1e10)


def test_a_profiled_step_has_no_speed_and_what_follows_it_is_in_no_step() -> None:
    process = Process()
    process.profiled = {2}
    tracker = Tracker(process, clock=Clock())
    tracker.start(total_steps=3)
    for _ in range(3):
        tracker.step(loss=1.0, tokens=8, flops=1e6)
    steps = process.of("step")
    assert [step.profiled for step in steps] == [None, True, None]
    assert [step.tokens_per_second is None for step in steps] == [False, True, False]
    assert [step.mfu for step in steps] == [None, None, None]
    assert {step.step_time_s for step in steps} == {1}


@pytest.mark.parametrize(
    "model",
    [torch.nn.Linear(4, 4), torch.nn.Sequential(torch.nn.Embedding(10, 4), torch.nn.Linear(4, 4))],
)
def test_an_unknown_architecture_has_no_mfu(model: Any) -> None:
    process = Process()
    tracker = Tracker(process, clock=Clock())
    tracker.start()
    tracker.step(loss=1.0, tokens=8, model=model)
    [step] = process.of("step")
    assert (step.flops, step.mfu) == (None, None)
    assert step.tokens_per_second == 8.0


def test_a_model_of_no_known_architecture_is_counted_by_its_modules() -> None:
    """Before, scripts with Falcon, DeepSeek or GLM had a dash where runs of a config had an MFU."""
    process = Process()
    process.flops = lambda tokens, squares: 7.0 * tokens + squares
    tracker = Tracker(process, clock=Clock())
    tracker.start(model=torch.nn.Linear(4, 4), sequence_length=2)
    tracker.step(loss=1.0, tokens=8)
    [step] = process.of("step")
    assert step.flops == 7 * 8 + 8 * 2
    Tracker(process, clock=Clock()).start(model=_tiny())
    assert process.counted == ["Linear"]


def test_a_head_that_is_no_language_models_has_no_flops() -> None:
    assert describe_model(_tiny("LlamaForSequenceClassification")).flops_of is None


def test_a_partly_frozen_model_has_no_flops_but_lora_has() -> None:
    from peft import LoraConfig, get_peft_model

    frozen = _tiny()
    frozen.model.layers[0].requires_grad_(False)
    assert describe_model(frozen).flops_of is None
    adapted = get_peft_model(_tiny(), LoraConfig(r=4, target_modules=["q_proj", "v_proj"]))
    facts = describe_model(adapted)
    full = describe_model(_tiny()).flops_of
    assert facts.flops_of is not None
    assert full is not None
    assert 0 < (facts.flops_of(100, 0) or 0) < (full(100, 0) or 0)


def test_a_wrapped_model_is_the_model_inside() -> None:
    class Wrapper(torch.nn.Module):
        def __init__(self, module: Any) -> None:
            super().__init__()
            self.module = module

    facts = describe_model(Wrapper(_tiny()))
    assert facts.name == "Wrapper"
    assert facts.flops_of is not None


def test_a_model_that_comes_with_the_first_step_is_reported_with_it() -> None:
    process = Process()
    tracker = Tracker(process, clock=Clock())
    tracker.start(total_steps=2)
    tracker.step(loss=1.0, tokens=8, model=_tiny())
    assert [start.peak_flops for start in process.of("start")] == [None, PEAK.flops]
    assert process.of("start")[1].total_steps == 2
    assert process.of("step")[0].mfu is not None


def test_more_than_the_peak_is_no_number() -> None:
    process = Process()
    process.known_peak = Peak("a CPU", 1.0)
    tracker = Tracker(process, clock=Clock())
    tracker.start(model=_tiny())
    tracker.step(loss=1.0, tokens=8)
    assert process.of("step")[0].mfu is None
    [warning] = process.of("warning")
    assert "LLMOPS_PEAK_TFLOPS" in warning.remedy


def test_tokens_of_one_worker_of_several_are_unknown_and_a_warning_says_so_once() -> None:
    process = Process(world_size=2)
    tracker = Tracker(process, clock=Clock())
    tracker.start()
    for _ in range(3):
        tracker.step(loss=1.0, tokens=8)
    assert [step.tokens for step in process.of("step")] == [None] * 3
    [warning] = process.of("warning")
    assert "tokens_per_worker" in warning.remedy
    tracker.step(loss=1.0, tokens_per_worker=8)
    assert process.of("step")[-1].tokens == 16


def test_other_ranks_report_nothing() -> None:
    process = Process(rank=1, world_size=2)
    tracker = Tracker(process, clock=Clock())
    tracker.start(model=_tiny())
    tracker.log({"reward": 0.5})
    tracker.step(loss=1.0, tokens=8)
    tracker.evaluation({"eval_loss": 1.0})
    tracker.checkpoint(Path("nothing"))
    assert process.events == []


def test_a_loss_that_is_not_a_number_is_reported_as_it_is() -> None:
    process = Process()
    Tracker(process, clock=Clock()).step(loss=float("nan"))
    assert math.isnan(process.of("step")[0].loss)


def test_the_first_step_ends_its_phase_once() -> None:
    process = Process()
    tracker = Tracker(process, clock=Clock())
    tracker.step(loss=1.0)
    tracker.step(loss=1.0)
    assert [(e.name, e.state) for e in process.of("phase")] == [("first_step", "end")]


def test_a_script_that_resumes_continues_the_numbers() -> None:
    process = Process()
    process.newest = StoredCheckpoint(Path("/run/checkpoint-40"), 40)
    tracker = Tracker(process, clock=Clock())
    assert tracker.resume_checkpoint() == Path("/run/checkpoint-40")
    tracker.start(total_steps=60)
    tracker.step(loss=1.0)
    assert process.of("start")[0].first_step == 41
    assert process.of("step")[0].step == 41


def test_a_checkpoint_that_is_not_there_is_a_warning_and_stops_nothing(tmp_path: Path) -> None:
    process = Process()
    tracker = Tracker(process, clock=Clock())
    tracker.step(loss=1.0)
    tracker.checkpoint(tmp_path / "missing")
    [warning] = process.of("warning")
    assert "step 1" in warning.message
    tracker.checkpoint(tmp_path)
    assert process.of("checkpoint")[0].step == 1


def test_the_step_at_which_it_was_asked_to_stop_is_noted() -> None:
    process = Process()
    tracker = Tracker(process, clock=Clock())
    tracker.step(loss=1.0)
    assert not tracker.should_stop()
    process.stop = True
    assert tracker.should_stop()
    assert process.stopped_at == 1


_OUTSIDE = """
import sys, time
begin = time.process_time()
from llmops_kernel import track
took_s = time.process_time() - begin
heavy = {"torch", "ray", "pydantic", "numpy", "pandas", "transformers"} & set(sys.modules)
assert not heavy, heavy
track.start(total_steps=3)
track.step(loss=1.0, tokens=3)
track.evaluation({"loss": 1.0})
track.checkpoint("nowhere")
assert track.should_stop() is False
assert track.resume_checkpoint() is None
assert track.active() is False
assert not {"pydantic", "torch", "ray"} & set(sys.modules)
print(took_s)
"""


def test_outside_a_run_it_is_quick_to_import_and_does_nothing(tmp_path: Path) -> None:
    best = min(
        float(
            subprocess.run(
                [sys.executable, "-c", _OUTSIDE],
                cwd=tmp_path,
                check=True,
                capture_output=True,
                text=True,
            ).stdout
        )
        for _ in range(3)
    )
    assert best < 0.05


def test_numbers_of_the_scripts_own_travel_with_the_next_step() -> None:
    process = Process()
    tracker = Tracker(process, clock=Clock())
    tracker.log({"reward": 0.5, "grad_norm": torch.tensor(2.0), "loss": 9.0})
    tracker.log({"reward": 0.75})
    tracker.step(loss=1.0)
    tracker.step(loss=0.5)
    first, second = process.of("step")
    assert first.values == {"reward": 0.75}
    assert (first.loss, first.grad_norm) == (1.0, 2.0)
    assert (second.values, second.grad_norm) == (None, None)


def test_what_cannot_be_logged_is_a_warning_and_no_failure() -> None:
    process = Process()
    tracker = Tracker(process, clock=Clock())
    tracker.log({"mfu": 0.5, "words": "many", "eval,acc": 1})
    tracker.log({f"name {number}": number for number in range(60)})
    tracker.step(loss=1.0)
    [step] = process.of("step")
    assert step.mfu is None
    assert len(step.values) == 50
    assert step.values["eval_acc"] == 1.0
    messages = [warning.message for warning in process.of("warning")]
    assert [message.split()[0] for message in messages] == ["track.log"] * 3
    assert "mfu" in messages[0]
    assert "words is a str" in messages[1]
    assert "takes 50 names" in messages[2]
