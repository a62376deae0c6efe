"""The learning rate ends with the rows, however wrong the number of steps was estimated."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import get_scheduler

from llmops_kernel.metrics.events import AnyEvent
from llmops_kernel.train.data.stream.schedule import StreamSchedule, steps_in_all
from tests.train.test_loop import of, run

STEPS = 60


def scheduler(schedule: StreamSchedule, *, kind: str, total: int) -> Any:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    made = get_scheduler(
        kind, optimizer, num_warmup_steps=schedule.warmup, num_training_steps=total
    )
    schedule.replace_in(made, total=total)
    return made


def rates(made: Any, schedule: StreamSchedule, steps: range) -> list[float]:
    """The rate of each step, noting the true progress after it, as the callback does."""
    found = []
    for step in steps:
        found.append(made.get_last_lr()[0])
        made.optimizer.step()
        made.step()
        schedule.note(steps=step + 1, progress=(step + 1) / STEPS)
    return found


@pytest.mark.parametrize("kind", ["cosine", "linear", "constant_with_warmup"])
@pytest.mark.parametrize("warmup", [0, 6])
@pytest.mark.parametrize("estimate", [42, 60, 90])
def test_the_rate_ends_with_the_rows(kind: str, warmup: int, estimate: int) -> None:
    schedule = StreamSchedule(warmup=warmup, by_progress=True)
    found = rates(scheduler(schedule, kind=kind, total=estimate), schedule, range(STEPS))
    right = StreamSchedule(warmup=warmup, by_progress=False)
    wanted = rates(scheduler(right, kind=kind, total=STEPS), right, range(STEPS))
    assert found == pytest.approx(wanted, abs=0.1)
    assert found[: warmup + 1] == wanted[: warmup + 1]
    falling = found[warmup:]
    assert falling == sorted(falling, reverse=True)
    assert found[-1] == pytest.approx(wanted[-1], abs=0.005)


def test_a_rate_never_rises_after_the_end_of_its_curve() -> None:
    schedule = StreamSchedule(warmup=0, by_progress=False)
    found = rates(scheduler(schedule, kind="cosine", total=42), schedule, range(STEPS))
    assert found == sorted(found, reverse=True)
    assert found[42:] == pytest.approx([0.0] * 18)


def test_a_resumed_run_follows_the_curve_that_it_began_with() -> None:
    whole = StreamSchedule(warmup=4, by_progress=True)
    wanted = rates(scheduler(whole, kind="cosine", total=42), whole, range(STEPS))
    first = StreamSchedule(warmup=4, by_progress=True)
    made = scheduler(first, kind="cosine", total=42)
    found = rates(made, first, range(25))
    state = made.state_dict()
    # By now all rows have been counted.
    second = StreamSchedule(warmup=4, by_progress=False)
    made = scheduler(second, kind="cosine", total=STEPS)
    made.load_state_dict(state)
    assert found + rates(made, second, range(25, STEPS)) == pytest.approx(wanted)


def test_the_total_is_what_the_progress_lets_one_expect() -> None:
    assert steps_in_all(42, 0.7) == 60
    assert steps_in_all(42, 0.0) == 43
    assert steps_in_all(42, 1.0) == 43


def write_uneven(path: Path) -> int:
    """A file whose rows are long where they are counted beforehand; return their number."""
    lines = []
    looked_at = {(2 * n + 1) * 40 // 32 for n in range(16)}
    for part in range(40):
        count = 4 if part in looked_at else 8
        for _ in range(count):
            lines.append(json.dumps({"text": f"{len(lines)} ab"}).ljust(1024 // count - 1))
    path.write_text("\n".join(lines) + "\n")
    return len(lines)


@pytest.mark.slow
@pytest.mark.beside
def test_a_training_that_is_longer_than_estimated_has_the_right_rates(
    make_config: Callable[..., Any],
    workspace: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LLMOPS_CACHE", str(tmp_path / "cache"))
    count = write_uneven(workspace / "uneven.jsonl")
    config = make_config(
        data={"train": "uneven.jsonl", "streaming": True, "format": "text", "max_length": 16},
        training={"micro_batch_size": 4, "global_batch_size": 4, "max_steps": None},
        optimizer={"learning_rate": 1e-3},
    )
    events = run(config, tmp_path / "cut", workspace, stop_at=30)
    first = of(events, "start")[0]
    steps = math.ceil(count / 4)
    assert first.total_steps < 0.7 * steps
    events += run(config, tmp_path / "cut", workspace)  # All lines have been counted by now.
    found = learning_rates(events)
    assert sorted(found) == [*range(1, steps + 1)]
    wanted = [0.5e-3 * (1 + math.cos(math.pi * step / steps)) for step in range(steps)]
    assert [found[step + 1] for step in range(steps)] == pytest.approx(wanted, abs=4e-5)
    assert of(events, "start")[-1].total_steps == steps


def learning_rates(events: list[AnyEvent]) -> dict[int, float]:
    return {event.step: event.learning_rate for event in of(events, "step")}
