"""A Ray cluster whose worker has a GPU, through a user's door. Run with `-s` for the figures.

Never run on a GPU yet; all but what needs one was tried with workers on a CPU.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import llmops_kernel as llmops
from llmops_kernel.providers.protocol import ClusterInfo
from llmops_kernel.services.plan import plan_config
from llmops_kernel.store.journal.training_view import TrainingView
from llmops_kernel.views.waterfall import lines
from tests.gpu.test_plan import LENGTH, random_model
from tests.gpu.trained import GPUS

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.ray,
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.skipif(not GPUS, reason="needs a GPU"),
]
Submit = Callable[..., llmops.Run]
OF_ALL: dict[str, Any] = {
    "data": {"train": "rows.jsonl", "max_length": LENGTH, "long_texts": "cut"},
    "parallelism": {"strategy": "ddp", "num_workers": 1, "use_gpu": True},
    "performance": "off",
    "checkpoint": {"every_steps": None},
}
LORA = {"method": "lora", "training": {"micro_batch_size": 4, "max_steps": 20}}
FULL = {"method": "full", "training": {"micro_batch_size": 8, "max_steps": 30}}
TOO_MUCH = {"micro_batch_size": 512, "global_batch_size": 512, "max_steps": 3}


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two configs of a model of 0.3 billion parameters, with rows of its whole length."""
    folder, model = tmp_path_factory.mktemp("workspace"), tmp_path_factory.mktemp("models") / "qwen"
    random_model(model)
    text = " ".join(f"number {number} follows" for number in range(LENGTH))
    (folder / "rows.jsonl").write_text((json.dumps({"text": text}) + "\n") * 2048)
    for name, config in {"lora": LORA, "full": FULL}.items():
        of_model = {"model": {"id": str(model), "dtype": "bfloat16"}, "name": name}
        (folder / f"{name}.train.yaml").write_text(json.dumps({**OF_ALL, **config, **of_model}))
    return folder


@pytest.fixture
def submit(ray_cluster: ClusterInfo, workspace: Path) -> Submit:
    """Submit one of the configs with overrides, and wait for its end."""
    cluster = llmops.cluster(ray_cluster.name)

    def submit(name: str, **overrides: Any) -> llmops.Run:
        run = cluster.submit(workspace / f"{name}.train.yaml", **overrides)
        assert run.wait(240, raise_on_failure=False) == "SUCCEEDED", run.logs(tail=60)
        return run

    return submit


def view(run: llmops.Run) -> TrainingView:
    assert isinstance(run.view, TrainingView)
    return run.view


def losses(run: llmops.Run) -> list[float]:
    return [step.loss or 0.0 for step in view(run).steps]


def test_the_second_run_begins_sooner(submit: Submit) -> None:
    runs = [submit("lora", seed=seed) for seed in (1, 2, 3)]
    for run in runs:
        phases = [f"{one.name} {one.duration_s or 0:.2f}" for one in view(run).phases()]
        print(f"\n{view(run).submit_to_first_step_s:.2f} s to the first step: {', '.join(phases)}")
    first, *warm = [view(run).submit_to_first_step_s or 0.0 for run in runs]
    assert max(warm) < first
    start = view(runs[0]).start
    assert start is not None
    assert start.device.startswith("NVIDIA")


def test_bars_explain_a_run_and_its_verdict_holds(submit: Submit) -> None:
    run = submit("full")
    waterfall, verdict, measured = run.waterfall(), run.verdict(), view(run).measured
    assert waterfall is not None
    assert verdict is not None
    assert measured is not None
    print("\n" + "\n".join(lines(waterfall)), verdict.sentence, sep="\n")
    first, last = view(run).steps[-measured.steps], view(run).steps[-1]
    wall_s = last.time_s - first.time_s + (first.step_time_s or 0.0)
    assert waterfall.total * measured.window_s == pytest.approx(wall_s, rel=0.02)
    assert 0.05 < waterfall.mfu < 1.0
    if not verdict.change:
        return
    after = view(submit("full", **verdict.change)).measured
    assert after is not None
    speeds = [one.overall_tokens_per_second or 0.0 for one in (measured, after)]
    gain = speeds[1] / speeds[0] - 1
    print(f"{verdict.change}: {verdict.gain:+.0%} predicted, {gain:+.0%} measured")
    assert verdict.gain is not None
    assert gain > verdict.gain / 2


def test_a_run_that_is_out_of_memory_goes_on_with_what_fits(submit: Submit) -> None:
    run = submit("full", **TOO_MUCH)
    changes = [restart.changes for restart in view(run).restarts]
    print(f"\n{changes}; {view(run).submit_to_first_step_s or 0:.1f} s to the first step")
    assert changes
    size = changes[-1]["training.micro_batch_size"]
    other = submit("full", **{**TOO_MUCH, "micro_batch_size": size})
    assert not view(other).restarts
    assert losses(run) == pytest.approx(losses(other), rel=1e-3)


def test_the_largest_micro_batch_is_searched_for(submit: Submit, workspace: Path) -> None:
    planned = plan_config(workspace / "full.train.yaml").plan.largest_micro_batch
    settings = {**TOO_MUCH, "micro_batch_size": "auto"}
    run, again = submit("full", **settings), submit("full", **settings)
    for one in (run, again):
        (found,) = [span for span in view(one).phases() if span.name == "batch_search"]
        print(f"\n{found.detail} ({found.duration_s or 0:.1f} s); the plan says {planned}")
        assert not view(one).restarts
    assert view(again).start == view(run).start or view(again).start is not None
