"""Streamed training of two real workers: each row once an epoch, also after a killed worker."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from llmops_kernel.errors import DataError
from llmops_kernel.metrics.events import AnyEvent, StepEvent
from llmops_kernel.store.journal.journal import FolderTail
from llmops_kernel.store.journal.training_view import TrainingView
from llmops_kernel.train.data.stream.ledger import lineage, trained_rows
from llmops_kernel.train.data.stream.plan import plan_stream
from llmops_kernel.train.data.stream.reader import read
from tests.train.data.stream.files import rows, write_jsonl, write_parquet
from tests.train.strategy_pairs import Pairs, open_pairs
from tests.train.test_loop import run

pytestmark = [pytest.mark.slow, pytest.mark.beside, pytest.mark.timeout(600)]

COUNT = 120
# Notes which rows each worker formats, in each attempt; kills worker 1 once, where that is asked.
HOOKS = """
import os, signal
from pathlib import Path
from transformers import TrainerCallback

FOLDER = Path(__file__).parent
KILL_AT = int(os.environ.get("KILL_AT", 0))

def format_example(row):
    with (FOLDER / f"rows-{os.environ['RANK']}.txt").open("a") as file:
        file.write(row["text"].split()[0] + "\\n")
    return row

class Kill(TrainerCallback):
    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == KILL_AT and os.environ["RANK"] == "1":
            os.kill(os.getpid(), signal.SIGKILL)

def callbacks():
    return [Kill()]
"""


@pytest.fixture(scope="module")
def pairs() -> Iterator[Pairs]:
    with open_pairs() as pairs:
        yield pairs


@pytest.fixture
def data(workspace: Path) -> Path:
    """A folder with JSONL and Parquet: 120 rows with their numbers in them."""
    write_jsonl(workspace / "data" / "a.jsonl", rows(60), blank_every=9)
    write_parquet(workspace / "data" / "b.parquet", rows(60, 60), group=20)
    (workspace / "hooks.py").write_text(HOOKS)
    return workspace


def settings(**data: Any) -> dict[str, Any]:
    return {
        "data": {"train": "data", "streaming": True, "format": "text", **data},
        "hooks": "hooks.py",
        "parallelism": {"num_workers": 2},
        "training": {"micro_batch_size": 2, "global_batch_size": 8, "max_steps": None},
    }


def formatted(workspace: Path, rank: int) -> list[int]:
    """Return the rows that a worker has formatted so far, and forget them."""
    path = workspace / f"rows-{rank}.txt"
    found = [int(line) for line in path.read_text().split()]
    path.unlink()
    return found


def ledger_rows(
    events: list[AnyEvent], workspace: Path, seed: int
) -> tuple[dict[int, list[int]], list[set[int]]]:
    """Return the numbers of the trained rows by epoch, and by worker in the first epoch."""
    plan = plan_stream("data", roots=[workspace])
    parts = [read(plan.files, part) for part in plan.parts]
    texts = [[part.row(n, "")["text"] for n in range(len(part))] for part in parts]
    found = trained_rows(lineage(events), [len(part) for part in parts], seed=seed)
    numbers = {
        epoch: [int(texts[part][row].split()[0]) for part, row, _ in places]
        for epoch, places in found.items()
    }
    mine = [
        {int(texts[part][row].split()[0]) for part, row, owner in found[0] if owner == rank}
        for rank in range(2)
    ]
    return numbers, mine


def test_each_row_is_trained_on_once_an_epoch_also_after_a_killed_worker(
    pairs: Pairs, make_config: Callable[..., Any], data: Path, tmp_path: Path
) -> None:
    config = make_config(**settings(), checkpoint={"every_steps": 5})
    config = config.model_copy(
        update={"training": config.training.model_copy(update={"num_epochs": 2.0})}
    )
    folder = tmp_path / "run"
    codes = pairs.run(config, folder, data, env={"KILL_AT": "13"})
    assert codes[1] == -9
    # Both workers look at the first 64 rows before training, then each at its own, 4 a step; what
    # it has read ahead when the other is killed is not trained on.
    first = [formatted(data, rank)[64:] for rank in range(2)]
    assert not set(first[0][:52]) & set(first[1][:52])
    assert pairs.run(config, folder, data, env={"KILL_AT": "0"}, attempt=2) == [0, 0], (
        folder / "0.log"
    ).read_text()[-3000:]
    events = FolderTail(folder / "journal").read()
    numbers, workers = ledger_rows(events, data, config.seed)
    assert {epoch: sorted(found) for epoch, found in numbers.items()} == {
        0: [*range(COUNT)],
        1: [*range(COUNT)],
    }
    assert workers[0].isdisjoint(workers[1])
    # What the ledger says is what the workers have really read: up to the checkpoint of step 10
    # in the first attempt, from there on in the second.
    second = [formatted(data, rank)[64:] for rank in range(2)]
    assert Counter(numbers[0] + numbers[1]) == Counter(
        number for rank in range(2) for number in [*first[rank][:40], *second[rank]]
    )
    steps = [event for event in events if isinstance(event, StepEvent)]
    assert max(step.step for step in steps) == TrainingView(events).total_steps
    last = steps[-1]
    assert last.epoch == pytest.approx(2.0)


def test_steps_are_given_or_come_from_the_rows(
    pairs: Pairs, make_config: Callable[..., Any], data: Path, tmp_path: Path
) -> None:
    sections = settings()
    config = make_config(**sections, checkpoint={"every_steps": 4})
    sections["training"] = {**sections["training"], "max_steps": 7}
    for number, (wanted, expected) in enumerate(((config, 15), (make_config(**sections), 7))):
        events = pairs.events(wanted, tmp_path / f"run-{number}", data)
        steps = [event.step for event in events if isinstance(event, StepEvent)]
        assert len(steps) in ({expected, expected + 1} if number == 0 else {expected})
        numbers, _ = ledger_rows(events, data, config.seed)
        assert set(Counter(numbers[0]).values()) == {1}
        assert sum(map(len, numbers.values())) == (COUNT if number == 0 else 7 * 8)


def test_broken_rows_are_skipped_counted_and_named(
    make_config: Callable[..., Any], data: Path, tmp_path: Path
) -> None:
    lines = [*map(json.dumps, rows(30)), "{", *map(json.dumps, rows(20, 30)), '{"a": 1}']
    write_jsonl(data / "data" / "a.jsonl", lines)
    one = {**settings(on_error="skip"), "hooks": {}, "parallelism": {"num_workers": 1}}
    events = run(make_config(**one), tmp_path / "skip", data)
    view = TrainingView(events)
    assert view.skipped_rows == 2
    (warning,) = [event for event in events if event.kind == "warning"]
    assert warning.message.startswith("2 rows of data skipped: ")
    assert "a.jsonl, row 31 is not valid JSON" in warning.message
    assert "a.jsonl, row 52" in warning.message
    losses = [event.loss for event in events if isinstance(event, StepEvent)]
    assert all(loss is not None and 0 < loss < 10 for loss in losses)
    one["data"]["on_error"] = "stop"
    with pytest.raises(DataError, match=r"^a\.jsonl, row 31 is not valid JSON"):
        run(make_config(**one), tmp_path / "stop", data)
