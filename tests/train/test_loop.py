"""The worker loop in a plain process: no Ray, no process group."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from llmops_kernel.errors import DataError, ModelError
from llmops_kernel.metrics.events import AnyEvent
from llmops_kernel.store.journal.journal import FolderTail, JournalWriter
from llmops_kernel.store.journal.training_view import TrainingView

pytestmark = [pytest.mark.slow, pytest.mark.beside]

Config = Callable[..., Any]


def run(
    config: Any, folder: Path, workspace: Path, *, stop_at: int | None = None, **more: Any
) -> list[AnyEvent]:
    """Train and return what this call journalled; `more` are fields of the context."""
    from llmops_kernel.train.context import WorkerContext
    from llmops_kernel.train.loop import train

    tail = FolderTail(folder / "journal")
    tail.read()
    journal = JournalWriter([folder / "journal"], stream="1-worker-1", attempt=1)
    steps: list[int] = []

    def stop_requested() -> bool:
        steps.extend(e.step for e in tail_steps.read() if e.kind == "step")
        return stop_at is not None and len(steps) >= stop_at - 1

    tail_steps = FolderTail(folder / "journal")
    tail_steps.read()
    context = WorkerContext(
        run_id="test",
        folder=folder,
        workspace=workspace,
        journal=journal,
        stop_requested=stop_requested,
        **more,
    )
    train(config, context)
    journal.close()
    return tail.read()


def of(events: Sequence[AnyEvent], kind: str) -> list[Any]:
    return [event for event in events if event.kind == kind]


def losses(events: Sequence[AnyEvent]) -> dict[int, float]:
    return {event.step: event.loss for event in of(events, "step")}


def test_a_step_says_all_that_is_known_of_it(
    make_config: Config, workspace: Path, tmp_path: Path
) -> None:
    events = run(make_config(), tmp_path / "run", workspace)
    start, steps = of(events, "start")[0], of(events, "step")
    assert [step.step for step in steps] == [1, 2, 3, 4, 5, 6]
    assert start.total_steps == 6
    assert start.peak_source == "stated in LLMOPS_PEAK_TFLOPS"
    for step in steps:
        assert step.step_time_s == pytest.approx(step.data_wait_s + step.compute_s)
        assert step.tokens_per_second == pytest.approx(step.tokens / step.step_time_s)
        assert step.mfu == pytest.approx(step.flops / step.step_time_s / start.peak_flops)
        assert 0 < step.mfu < 1
        assert step.peak_memory_bytes is None  # a CPU's allocator reports none
        assert step.data_wait_s > 0
    assert steps[-1].mfu_palm > steps[-1].mfu
    assert steps[-1].hfu > steps[-1].mfu  # The rows of a batch are padded.
    names = [event.name for event in of(events, "phase") if event.state == "end"]
    assert names == ["process_group", "data", "model_load", "engine", "first_step", "save"]
    (process,) = of(events, "process")
    assert (process.rank, process.warm) == (0, False)
    assert "not started through" in process.reason
    assert 10 * 2**20 < process.private_bytes < steps[-1].host_memory_bytes * 2


def test_a_model_that_is_not_on_disk_shows_that_the_hub_is_asked(
    make_config: Config, workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(ModelError):
        run(make_config(model="nobody/has-this"), tmp_path / "run", workspace)
    read = FolderTail(tmp_path / "run" / "journal").read()
    assert of(read, "phase")[-1].name == "hub"
    assert of(read, "phase")[-1].state == "begin"


def test_a_data_set_that_is_not_on_disk_shows_that_the_hub_is_asked(
    make_config: Config, workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(DataError, match="cannot be loaded from the hub"):
        run(make_config(data={"train": "nobody/has-this"}), tmp_path / "run", workspace)
    read = FolderTail(tmp_path / "run" / "journal").read()
    assert of(read, "phase")[-1].name == "hub"


def test_a_peak_that_a_step_exceeds_is_never_shown_as_an_mfu_above_one(
    make_config: Config, workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A peak of a busy machine (135 MFLOPS for 45 GFLOPS) once showed MFU 658 %."""
    monkeypatch.setenv("LLMOPS_PEAK_TFLOPS", "0.000001")
    events = run(make_config(), tmp_path / "run", workspace)
    assert [step.mfu for step in of(events, "step")] == [None] * 6
    assert all(step.flops > 0 for step in of(events, "step"))
    (warning,) = of(events, "warning")
    assert "more than the peak" in warning.message
    assert "LLMOPS_PEAK_TFLOPS" in warning.remedy
    last = of(events, "start")[-1]
    assert (last.total_steps, last.peak_flops) == (6, None)


def test_packing_trains_on_the_same_tokens_in_fewer_steps(
    make_config: Config, workspace: Path, tmp_path: Path
) -> None:
    config = make_config(
        training={"max_steps": None, "num_epochs": 1}, data={"packing": True, "max_length": 256}
    )
    events = run(config, tmp_path / "run", workspace)
    assert sum(step.tokens for step in of(events, "step")) == of(events, "start")[0].num_tokens
    assert len(of(events, "step")) < 64 / 4


# Rows of 5 steps, other ones in each epoch.
MIXTURE = [{"path": "train.jsonl", "weight": 0.25}, {"path": "train.jsonl", "weight": 0.0625}]


@pytest.mark.parametrize(("method", "train"), [("lora", "train.jsonl"), ("full", MIXTURE)])
def test_an_interrupted_run_ends_like_an_undisturbed_one(
    make_config: Config, workspace: Path, tmp_path: Path, method: str, train: Any
) -> None:
    config = make_config(method=method, checkpoint={"every_steps": 2}, data={"train": train})
    whole = losses(run(config, tmp_path / "whole", workspace))
    first = run(config, tmp_path / "cut", workspace, stop_at=3)
    assert max(losses(first)) == 3
    assert of(first, "checkpoint")[-1].step == 3
    assert not of(first, "output")
    second = run(config, tmp_path / "cut", workspace)
    assert of(second, "start")[0].num_rows == (64 if train == "train.jsonl" else 20)
    assert min(losses(second)) == 4
    assert {**losses(first), **losses(second)} == pytest.approx(whole, abs=1e-3)


def test_the_loss_falls_and_the_output_loads(
    make_config: Config, workspace: Path, tmp_path: Path
) -> None:
    from peft import PeftModel
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from llmops_kernel.models.catalogue import prepare

    config = make_config(
        optimizer={"learning_rate": 0.01},
        training={"max_steps": 30},
        output={"merge_adapter": True},
    )
    events = run(config, tmp_path / "run", workspace)
    found = losses(events)
    assert found[30] < found[1] - 0.8
    base = AutoModelForCausalLM.from_pretrained(str(prepare("tiny-llama")))
    assert PeftModel.from_pretrained(base, str(tmp_path / "run" / "output"))
    merged = tmp_path / "run" / "output-merged"
    assert AutoModelForCausalLM.from_pretrained(str(merged))
    assert AutoTokenizer.from_pretrained(str(merged)).chat_template
    assert "last training loss" in (tmp_path / "run" / "output" / "README.md").read_text()


def test_evaluation_is_weighted_by_tokens_and_calls_the_users_measure(
    make_config: Config, workspace: Path, tmp_path: Path
) -> None:
    (workspace / "hooks.py").write_text(
        "def compute_metrics(predictions, references, rows):\n"
        "    assert references == [row['completion'] for row in rows]\n"
        "    return {'seen': len(predictions)}\n"
    )
    config = make_config(
        data={"eval": "train.jsonl", "max_eval_rows": 7},
        evaluation={"generate": True, "max_new_tokens": 4, "at_start": True, "every_steps": 3},
        hooks="hooks.py",
    )
    events = run(config, tmp_path / "run", workspace)
    evals = of(events, "eval")
    assert [event.step for event in evals] == [0, 3, 6]
    assert all(event.metrics["seen"] == 7 for event in evals)
    # An untrained model knows nothing: its loss is close to that of a guess among all tokens.
    assert evals[0].metrics["eval_loss"] == pytest.approx(math.log(261), rel=0.05)
    assert evals[2].metrics["eval_loss"] < evals[0].metrics["eval_loss"]
    # Each says from its first moment how many rows and answers it is of.
    counted = [
        (event.done, event.total, event.unit) for event in of(events, "progress") if not event.done
    ]
    assert counted == [(0, 7, "rows"), (0, 7, "answers")] * 3
    start, *_ = of(events, "start")
    assert (start.evaluate_every, start.evaluates_at_end, start.save_every) == (3, True, 0)


def test_own_prompts_and_the_same_rows_are_answered_at_each_evaluation(
    make_config: Config, workspace: Path, tmp_path: Path
) -> None:
    settings = {"max_new_tokens": 3, "at_start": True, "every_steps": 3}
    own = make_config(evaluation={"prompts": ["Say something.", "And more?"], **settings})
    evals = of(run(own, tmp_path / "own", workspace), "eval")
    assert [event.step for event in evals] == [0, 3, 6]
    assert [event.metrics for event in evals] == [{}, {}, {}]
    for event in evals:
        assert [sample["row"] for sample in event.samples] == ["prompt 1", "prompt 2"]
        assert all("reference" not in sample for sample in event.samples)
    assert "Say something." in evals[0].samples[0]["prompt"]
    assert all("prompt" not in sample for event in evals[1:] for sample in event.samples)
    kept = TrainingView(evals).evaluations[2].samples[0]  # Written once, shown always.
    assert kept["prompt"] == evals[0].samples[0]["prompt"]
    both = make_config(
        data={"eval": "train.jsonl", "max_eval_rows": 5},
        evaluation={"generate": True, "samples": 2, "prompts": ["Say something."], **settings},
    )
    evals = of(run(both, tmp_path / "both", workspace), "eval")
    rows = [[sample["row"] for sample in event.samples] for event in evals]
    assert rows == [["1", "3", "prompt 1"]] * 3
    assert evals[0].num_rows == 5
    assert evals[0].samples[1]["reference"]


def test_numbers_of_a_users_callback_and_measure_stand_in_the_steps(
    make_config: Config, workspace: Path, tmp_path: Path
) -> None:
    (workspace / "hooks.py").write_text(
        "from transformers import TrainerCallback\n"
        "from llmops_kernel import track\n"
        "class Own(TrainerCallback):\n"
        "    def on_step_end(self, args, state, control, **kwargs):\n"
        "        track.log(doubled=2.0 * state.global_step)\n"
        "def callbacks():\n"
        "    return [Own()]\n"
        "def compute_metrics(predictions, references, rows):\n"
        "    track.log(measured=len(rows))\n"
        "    return {'seen': 1}\n"
    )
    config = make_config(
        data={"eval": "train.jsonl", "max_eval_rows": 2},
        evaluation={"generate": True, "max_new_tokens": 1, "every_steps": 3},
        hooks="hooks.py",
    )
    steps = of(run(config, tmp_path / "run", workspace), "step")
    assert [event.values["doubled"] for event in steps] == [2.0 * e.step for e in steps]
    # An evaluation follows its step: the next one takes its numbers along.
    assert [e.step for e in steps if "measured" in e.values] == [4]


def test_a_folder_and_url_receive_the_result(
    make_config: Config, workspace: Path, tmp_path: Path
) -> None:
    target = tmp_path / "results"
    config = make_config(output=str(target), training={"max_steps": 1})
    events = run(config, tmp_path / "run", workspace)
    place = Path(of(events, "output")[0].path)
    assert place.parent == target
    assert json.loads((place / "adapter_config.json").read_text())["r"] == 16


@pytest.mark.parametrize(
    "sections",
    [
        {"method": "full", "model": {"id": "tiny-llama", "dtype": "bfloat16"}},
        {"method": "lora", "model": {"id": "tiny-qwen2", "attn_implementation": "eager"}},
        {"method": "lora", "parallelism": {"gradient_checkpointing": True}},
    ],
    ids=["full-bf16", "qwen2-eager", "lora-checkpointing"],
)
def test_every_setting_trains_and_counts_the_same_work(
    make_config: Config, workspace: Path, tmp_path: Path, sections: dict[str, Any]
) -> None:
    plain = {key: value for key, value in sections.items() if key == "method"}
    reference = run(make_config(**plain, training={"max_steps": 3}), tmp_path / "a", workspace)
    events = run(make_config(**sections, training={"max_steps": 3}), tmp_path / "b", workspace)
    found, expected = losses(events), losses(reference)
    assert all(value is not None and math.isfinite(value) for value in found.values())
    if sections.get("model", {}).get("id") != "tiny-qwen2":
        assert found == pytest.approx(expected, rel=0.02)
    # Recomputation and precision do not change the work that is needed.
    flops = [step.flops for step in of(events, "step")]
    assert flops == [step.flops for step in of(reference, "step")]


def test_auto_trains_on_a_cpu_bit_by_bit_as_float32_does_and_says_so(
    make_config: Config, workspace: Path, tmp_path: Path
) -> None:
    named = make_config(model={"id": "tiny-llama", "dtype": "float32"})
    auto = make_config()
    assert auto.model.dtype == "auto"
    reference = run(named, tmp_path / "named", workspace)
    events = run(auto, tmp_path / "auto", workspace)
    assert losses(events) == losses(reference)
    starts = [of(found, "start")[-1] for found in (events, reference)]
    assert [start.dtype for start in starts] == ["float32", "float32"]
    assert starts[0].performance.startswith("float32 (CPUs train in it)")
    assert not starts[1].performance.startswith("float32")
    card = next((tmp_path / "auto").rglob("README.md")).read_text()
    assert "float32" in card


@pytest.mark.parametrize(("shuffle", "order"), [(True, "random"), (False, "sequential")])
def test_rows_are_shuffled_as_the_config_says(
    make_config: Config, tmp_path: Path, shuffle: bool, order: str
) -> None:
    from llmops_kernel.train.trainer import training_arguments

    config = make_config(data={"shuffle": shuffle})
    arguments = training_arguments(config, folder=tmp_path, use_gpu=False)
    assert arguments.train_sampling_strategy == order


@pytest.mark.parametrize("method", ["full", "lora"])
def test_a_mapped_model_trains_bit_by_bit_as_one_that_was_read(
    make_config: Config, workspace: Path, tmp_path: Path, method: str
) -> None:
    from llmops_kernel.train.model.kept import KEPT, MAPPED

    config = make_config(method=method)
    runs = [
        run(config, tmp_path / str(number), workspace, cache=tmp_path / "cache", keep_bytes=keep)
        for number, keep in enumerate([0, 2**30, 2**30])
    ]
    details = [
        event.detail
        for events in runs
        for event in of(events, "phase")
        if (event.name, event.state) == ("model_load", "end")
    ]
    assert details == ["", KEPT, MAPPED]
    first, *others = map(losses, runs)
    assert len(first) == 6
    assert all(other == first for other in others)
