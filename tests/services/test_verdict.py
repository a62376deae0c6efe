"""The verdict of a run: its change is one of the config that the run ended up with."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from llmops_kernel.metrics.events import AnyEvent, EndEvent, RestartEvent, StartEvent, StepEvent
from llmops_kernel.services.verdict import prediction_of, verdict_of
from llmops_kernel.store.journal.training_view import TrainingView
from llmops_kernel.store.record import RunRecord
from tests.configs import training_config_from_dict

VALUES: dict[str, Any] = {
    "model": "tiny-llama",
    "data": "rows.jsonl",
    "training": {"micro_batch_size": 4, "global_batch_size": 16, "max_steps": 20},
}


def run_of(
    tmp_path: Path,
    *restarts: RestartEvent,
    fixed_share: float = 0.5,
    searched: int = 0,
    **shares: float,
) -> tuple[RunRecord, TrainingView]:
    """Return a record and a view of twenty steps of a second, which have these parts.

    `searched`: the micro batch that it has looked for.
    """
    size = {"training.micro_batch_size": "auto"} if searched else {}
    config = training_config_from_dict(VALUES, size)
    record = RunRecord(
        run_id="demo-a",
        name="demo",
        created_s=time.time(),
        cluster="local",
        config=config.model_dump(mode="json"),
        workspace_root=str(tmp_path),
    )
    worker: dict[str, Any] = {"stream": "1-worker-1", "attempt": 1}
    start = StartEvent(
        **worker, micro_batch_size=searched, total_steps=20, num_workers=1, global_batch_size=16,
        device="CPU", dtype="float32", num_tokens=1000, peak_flops=1e12, fixed_share=fixed_share,
        time_s=1.0,
    )  # fmt: skip
    parts = {"data_wait_s": 0.0, "passes_s": 1.0, "optimizer_s": 0.0, "between_s": 0.0, **shares}
    events: list[AnyEvent] = [*restarts, start]
    events += [
        StepEvent(**worker, step=step, time_s=1.0 + step, step_time_s=1.0, tokens=64,
                  tokens_per_second=64.0, mfu=0.1, hfu=0.1, recomputed=0.0, communication_s=0.0,
                  offload_s=0.0, **parts)
        for step in range(1, 21)
    ]  # fmt: skip
    events.append(EndEvent(stream="1-driver", state="SUCCEEDED", time_s=30.0))
    return record, TrainingView(events)


def test_a_larger_micro_batch_is_not_proposed_to_a_run_that_ran_out_of_memory(
    tmp_path: Path,
) -> None:
    free = verdict_of(*run_of(tmp_path))
    assert free is not None
    assert free.change == {"training.micro_batch_size": 16}
    changes = {"training.micro_batch_size": 2}
    restart = RestartEvent(
        stream="1-controller", time_s=0.5, from_step=0, cause="out of memory", changes=changes
    )
    short = verdict_of(*run_of(tmp_path, restart))
    assert short is not None
    assert short.change == {}
    assert "would not fit" in short.sentence


def test_its_change_has_the_settings_that_the_run_went_on_with(tmp_path: Path) -> None:
    changes = {"training.micro_batch_size": 2}
    restart = RestartEvent(
        stream="1-controller", time_s=0.5, from_step=0, cause="out of memory", changes=changes
    )
    record, view = run_of(tmp_path, restart, data_wait_s=0.6, passes_s=0.4)
    answer = verdict_of(record, view)
    assert answer is not None
    assert answer.bound == "data"
    assert answer.change["training.micro_batch_size"] == 2
    assert answer.change["training_arguments.dataloader_num_workers"] == 2


def test_time_that_the_flops_do_not_explain_is_said(tmp_path: Path) -> None:
    record, view = run_of(tmp_path, fixed_share=0.0)
    answer = verdict_of(record, view)
    assert answer is not None
    assert answer.bound == "compute"
    assert "90% is not explained" in answer.sentence


@pytest.mark.parametrize(
    ("changes", "speed", "held"),
    [
        ({"training.micro_batch_size": 16}, 96.0, "+50% measured."),
        ({"training.micro_batch_size": 16}, None, "not measured yet."),
        ({"training.micro_batch_size": 8}, 96.0, ""),
        ({"training.micro_batch_size": 16, "seed": 1}, 96.0, ""),
    ],
)
def test_a_prediction_is_compared_with_the_run_that_has_just_its_change(
    tmp_path: Path, changes: dict[str, Any], speed: float | None, held: str
) -> None:
    record, view = run_of(tmp_path)
    config = training_config_from_dict(VALUES, changes)
    other = record.model_copy(update={"config": config.model_dump(mode="json")})
    steps = view.steps if speed else []
    faster = [step.model_copy(update={"tokens": speed}) for step in steps]
    assert view.start is not None
    newer = TrainingView([view.start, *faster])
    words = prediction_of(verdict_of(record, view), (record, view), (other, newer))
    begin = "training.micro_batch_size=16: +60% tokens/s predicted, " if held else ""
    assert words == f"{begin}{held}"


def test_a_run_that_has_looked_for_its_micro_batch_has_tried_larger_ones(tmp_path: Path) -> None:
    answer = verdict_of(*run_of(tmp_path, searched=4))
    assert answer is not None
    assert answer.change == {}
    loader = verdict_of(*run_of(tmp_path, searched=4, data_wait_s=0.6, passes_s=0.4))
    assert loader is not None
    assert loader.change["training.micro_batch_size"] == 4
    assert loader.change["training_arguments.dataloader_num_workers"] == 2
