"""When a streamed training ends: with its rows, its steps, or where somebody asks for it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import ValidationError

from llmops_kernel.errors import ConfigError
from llmops_kernel.train.context import WorkerContext
from llmops_kernel.train.data.examples import Example
from llmops_kernel.train.data.sources import Source
from llmops_kernel.train.data.stream.dataset import StreamedRows
from llmops_kernel.train.data.stream.open import open_stream
from llmops_kernel.train.data.stream.plan import plan_stream
from llmops_kernel.train.data.stream.progress import StreamProgress
from llmops_kernel.train.data.stream.walk import Walk
from llmops_kernel.train.hooks import Hooks
from tests.train.data.stream.files import rows, write_jsonl


def test_an_argument_that_a_stream_cannot_follow_is_refused(
    tmp_path: Path, make_config: Callable[..., Any]
) -> None:
    """With `streaming: auto` the config itself cannot know that its rows are streamed."""
    write_jsonl(tmp_path / "data.jsonl", rows(20))
    settings = {"training_arguments": {"ignore_data_skip": True}}
    with pytest.raises(ValidationError, match=r"does not work with data\.streaming"):
        make_config(data={"train": "data.jsonl", "streaming": True}, **settings)
    config = make_config(data={"train": "data.jsonl"}, **settings)
    context = WorkerContext(run_id="test", folder=tmp_path, workspace=tmp_path)
    with pytest.raises(ConfigError, match="ignore_data_skip does not work with streamed") as raised:
        open_stream(
            config,
            [Source("data.jsonl", [tmp_path])],
            tokenizer=None,
            hooks=Hooks(),
            context=context,
        )
    assert "data.streaming=false" in raised.value.remedy


def progress(tmp_path: Path, *, ends_with_rows: bool) -> StreamProgress:
    write_jsonl(tmp_path / "data.jsonl", rows(20))
    walk = Walk(plan_stream(Source("data.jsonl", [tmp_path])), 0, 1, seed=1, num_epochs=1)
    streamed = StreamedRows(
        walk, [lambda row, label: ([Example([1], [1, 1])], False)], micro_batch_size=2, ahead=4
    )
    context = WorkerContext(run_id="test", folder=tmp_path, workspace=tmp_path)
    return StreamProgress(
        context,
        streamed,
        rows_per_step=2,
        ends_with_rows=ends_with_rows,
        max_length=8,
        cache=tmp_path / "cache",
    )


@pytest.mark.parametrize(
    ("step", "finished", "asked", "stops", "total"),
    [
        (5, False, False, False, 10),
        (5, False, True, True, 10),  # A callback of the user's asked for it.
        (10, False, True, False, 20),  # The estimate was too low: half of the rows are left.
        (1000, False, True, False, 2000),
        (8, True, False, True, 8),  # It was too high.
        (10, True, True, True, 10),
    ],
)
def test_a_training_by_epochs_ends_with_its_rows(
    tmp_path: Path, step: int, finished: bool, asked: bool, stops: bool, total: int
) -> None:
    state: Any = SimpleNamespace(global_step=step, max_steps=10, epoch=None)
    control = SimpleNamespace(should_training_stop=asked)
    followed = progress(tmp_path, ends_with_rows=True)
    assert followed.end_step(state, control, finished=finished, progress=0.5) == finished
    assert (control.should_training_stop, state.max_steps) == (stops, total)


def test_a_training_by_steps_ends_with_them(tmp_path: Path) -> None:
    followed = progress(tmp_path, ends_with_rows=False)
    state: Any = SimpleNamespace(global_step=9, max_steps=10, epoch=None)
    control = SimpleNamespace(should_training_stop=False)
    assert not followed.end_step(state, control, finished=False, progress=0.5)
    state.global_step = 10
    assert followed.end_step(state, control, finished=False, progress=0.5)
    assert not followed.is_finished(10)
    assert control.should_training_stop is False
