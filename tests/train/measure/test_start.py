"""What a training journals of its plan: against FLOPs counted from the modules."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from llmops_kernel.planner.speed import Work
from llmops_kernel.services.plan_inputs import past_runs
from llmops_kernel.store.journal.training_view import TrainingView
from llmops_kernel.store.store import RunStore
from llmops_kernel.train.measure.start import _widths
from tests.server.runs import make_run
from tests.train.objectives.test_flops import COUNTING
from tests.train.strategy_pairs import Pairs
from tests.train.test_loop import of, run

pytestmark = [pytest.mark.slow, pytest.mark.beside]

Config = Callable[..., Any]
FULL: dict[str, Any] = {"method": "full", "model": {"id": "tiny-llama", "dtype": "float32"}}


@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize("method", ["full", "lora"])
def test_planned_work_is_what_the_modules_compute(
    make_config: Config, workspace: Path, tmp_path: Path, method: str, checkpointing: bool
) -> None:
    """HFU counts the products of real batches, padding included, from the loaded modules."""
    parallelism = {"strategy": "ddp", "gradient_checkpointing": checkpointing}
    config = make_config(
        method=method, parallelism=parallelism, training={"max_steps": 16}, performance="off"
    )
    events = run(config, tmp_path / "run", workspace)
    first, *_, last = of(events, "start")
    steps = of(events, "step")
    planned = first.planned
    assert planned.measured is None
    assert (planned.family, planned.attention, planned.method) == ("llama", "sdpa", method)
    assert planned.device.endswith("float32")
    assert set(planned.work) == {field.name for field in fields(Work)}
    # A busy machine has not counted the first yet.
    executed = [step.hfu * step.step_time_s * first.peak_flops for step in steps if step.hfu]
    # All rows are seen once, in micro batches other than those that the plan makes of them.
    assert planned.work["executed_flops"] == pytest.approx(sum(executed) / len(executed), rel=0.03)
    tokens = sum(step.tokens for step in steps) / len(steps)
    assert planned.tokens == pytest.approx(tokens, rel=0.02)
    measured = last.planned.measured
    assert measured.steps == 15
    assert measured.step_time_s == pytest.approx(median(s.step_time_s for s in steps[1:]))
    assert measured.tokens_per_second == pytest.approx(
        median(step.tokens / step.compute_s for step in steps[1:])
    )
    assert measured.peak_memory_bytes is None
    assert last.planned == planned.model_copy(update={"measured": measured})
    assert TrainingView(events).start.planned.measured == measured


@pytest.mark.parametrize("method", ["full", "lora"])
def test_what_checkpointing_repeats_is_what_pytorch_counts_in_each_strategy(
    pairs: Pairs, make_config: Config, workspace: Path, tmp_path: Path, method: str
) -> None:
    """ZeRO-3's linear layers let it repeat more. Each count is kept, and is not the next run's."""
    (workspace / "count_hooks.py").write_text(COUNTING)
    pytorchs = {"deepspeed": {"zero_optimization": {"memory_efficient_linear": False}}}
    executed = {}
    for name, settings in {"ddp": {}, "zero3": {}, "zero3, plain": pytorchs, "fsdp": {}}.items():
        strategy = {"strategy": name.partition(",")[0], **settings}
        config = make_config(
            method=method,
            model={**FULL["model"], "attention": "eager"},
            hooks="count_hooks.py",
            parallelism={**strategy, "num_workers": 2, "gradient_checkpointing": True},
            training={"max_steps": 3},
            performance="off",
        )
        events = pairs.events(config, tmp_path / name, workspace)
        files = [workspace / f"counted-{rank}.txt" for rank in range(2)]
        counts = [[float(line) for line in file.read_text().split()] for file in files]
        counted = [sum(step) for step in zip(*counts, strict=True)][1:]
        for file in files:
            file.unlink()
        start, steps = of(events, "start")[-1], of(events, "step")[1:]
        # Of two workers, and of the peak of both.
        reached = [2 * step.hfu * step.step_time_s * start.peak_flops for step in steps]
        planned = 2 * start.planned.work["executed_flops"]
        print(name, method, reached, counted, planned)
        assert reached == pytest.approx(counted, rel=1e-6), name
        assert planned == pytest.approx(sum(reached) / len(reached), rel=0.03)
        executed[name] = reached
    assert executed["zero3"] > executed["ddp"] == pytest.approx(executed["zero3, plain"])


@pytest.mark.parametrize("method", ["full", "lora"])
def test_pairs_and_their_reference(
    make_config: Config, workspace: Path, tmp_path: Path, method: str
) -> None:
    rows = [{"prompt": f"what is {n}?", "chosen": f"it is {n}.", "rejected": f"no {n} {n * n}."}
            for n in range(16)]  # fmt: skip
    (workspace / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    config = make_config(
        method=method, objective="dpo", data={"train": "pairs.jsonl"}, performance="off",
        training={"max_steps": 4},
    )  # fmt: skip
    events = run(config, tmp_path / "run", workspace)
    planned, steps = of(events, "start")[-1].planned, of(events, "step")
    peak = of(events, "start")[-1].peak_flops
    executed = sum(step.hfu * step.step_time_s * peak for step in steps) / len(steps)
    assert planned.work["executed_flops"] == pytest.approx(executed, rel=0.05)
    assert planned.tokens == pytest.approx(sum(s.tokens for s in steps) / len(steps), rel=0.03)


def test_what_the_planner_does_not_know_has_no_plan(
    make_config: Config, workspace: Path, tmp_path: Path
) -> None:
    (workspace / "hooks.py").write_text(
        "def build_model(config):\n"
        "    from transformers import AutoModelForCausalLM\n"
        "    from llmops_kernel.models.catalogue import prepare\n"
        "    model = AutoModelForCausalLM.from_pretrained(str(prepare('tiny-llama')))\n"
        "    model.requires_grad_(False)\n"
        "    model.lm_head.requires_grad_(True)\n"
        "    return model\n"
    )
    config = make_config(**FULL, hooks="hooks.py", training={"max_steps": 2})
    events = run(config, tmp_path / "run", workspace)
    assert {start.planned for start in of(events, "start")} == {None}


def test_a_run_teaches_the_store(
    make_config: Config, workspace: Path, tmp_path: Path, store: RunStore
) -> None:
    """Journals that are still growing are read again, those that have ended never more."""
    folder = make_run(store, "toy-1", steps=0, ended=None)
    assert past_runs(store) == []
    events = run(make_config(**FULL), folder, workspace)
    (known,) = past_runs(store)
    planned = of(events, "start")[-1].planned
    assert known.step_s == pytest.approx(planned.tokens / planned.measured.tokens_per_second)
    assert known.peak_flops == of(events, "start")[-1].peak_flops
    for file in (folder / "journal").glob("*-worker-*"):
        file.unlink()
    assert past_runs(RunStore(store.root)) == [known]
    store.delete("toy-1")
    assert past_runs(store) == []


def test_widths_are_those_of_the_collator() -> None:
    rows = [[3], [5, 17], [8], [2], [9]]
    assert _widths(rows, 2, 1, 1) == [(17, 2), (8, 2), (9, 1)]
    assert _widths(rows, 2, 2, 8) == [(24, 2), (8, 2), (16, 1)]
