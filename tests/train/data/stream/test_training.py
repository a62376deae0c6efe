"""Streamed training of two real workers: rows as their weights say, also after a killed one."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from llmops_kernel.metrics.events import StepEvent
from llmops_kernel.store.journal.journal import FolderTail
from llmops_kernel.store.journal.training_view import TrainingView
from llmops_kernel.train.data.stream.progress import FILE as CURSORS
from tests.train.data.stream.files import rows, write_jsonl, write_parquet
from tests.train.strategy_pairs import Pairs

pytestmark = [pytest.mark.slow, pytest.mark.beside, pytest.mark.timeout(600)]

COUNT, MORE, FIRST_MORE = 120, 40, 1000
# Notes which rows each worker reads to train on, in each attempt; kills worker 1 where it is asked.
HOOKS = """
import os, signal, threading
from pathlib import Path
from transformers import TrainerCallback

FOLDER = Path(__file__).parent
KILL_AT = int(os.environ.get("KILL_AT", 0))

def format_example(row):
    if threading.current_thread().name == "llmops-rows":
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
    """Return the rows that a worker has read to train on, in order, and forget them."""
    path = workspace / f"rows-{rank}.txt"
    found = [int(line) for line in path.read_text().split()]
    path.unlink()
    return found


def test_rows_are_trained_on_as_their_weights_say_also_after_a_killed_worker(
    pairs: Pairs, make_config: Callable[..., Any], data: Path, tmp_path: Path
) -> None:
    """Two sources, whose texts are longer than a sequence: the checkpoint is inside of one."""
    write_jsonl(data / "more.jsonl", rows(MORE, FIRST_MORE))
    sources = ["data", {"path": "more.jsonl", "weight": 0.5}]
    config = make_config(
        **settings(train=sources, max_length=32), checkpoint={"every_steps": 5, "keep": 9}
    )
    config = config.model_copy(
        update={"training": config.training.model_copy(update={"num_epochs": 2.0})}
    )
    folder = tmp_path / "run"
    codes = pairs.run(config, folder, data, env={"KILL_AT": "13"})
    assert codes[1] == -9
    first = [formatted(data, rank) for rank in range(2)]
    cursors = json.loads((folder / "checkpoints" / "checkpoint-10" / CURSORS).read_text())
    assert all(10 <= at[0] < 40 for at in cursors)  # 40 sequences are fewer rows.
    assert pairs.run(config, folder, data, env={"KILL_AT": "0"}, attempt=2) == [0, 0], (
        folder / "0.log"
    ).read_text()[-3000:]
    events = FolderTail(folder / "journal").read()
    # Up to the checkpoint of step 10 in the first attempt, from there on in the second: the rows of
    # the first source in both epochs, each of the second one in either.
    trained = [first[rank][: cursors[rank][0]] + formatted(data, rank) for rank in range(2)]
    assert Counter(trained[0] + trained[1]) == Counter(
        [*range(COUNT), *range(COUNT), *range(FIRST_MORE, FIRST_MORE + MORE)]
    )
    # Each token of each text was trained on, in both epochs of its source.
    steps = {event.step: event for event in events if isinstance(event, StepEvent)}
    every = [*rows(COUNT), *rows(COUNT), *rows(MORE, FIRST_MORE)]
    assert sum(step.tokens for step in steps.values()) == sum(len(one["text"]) + 1 for one in every)
    assert max(steps) == TrainingView(events).total_steps
    assert steps[max(steps)].epoch == pytest.approx(2.0)


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
        # Each row is one sequence, and what was read ahead was not trained on.
        read = [formatted(data, rank)[: len(steps) * 4] for rank in range(2)]
        numbers = [*read[0], *read[1]]
        assert len(set(numbers)) == len(numbers) == (COUNT if number == 0 else 7 * 8)
