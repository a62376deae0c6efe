"""Texts longer than `max_length` are trained on to their end, in sequences that do not overlap."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmops_kernel.config.models.sections import DataConfig
from llmops_kernel.errors import DataError
from llmops_kernel.store.preview_job import PreviewJob
from llmops_kernel.train.context import WorkerContext
from llmops_kernel.train.data.dataset import load_dataset
from llmops_kernel.train.data.examples import Blank, Example, may_divide, piece_ends, tokenise
from llmops_kernel.train.data.preview.work import Preview
from llmops_kernel.train.data.sources import DataSources, Source
from llmops_kernel.train.data.stream.dataset import Cursor, RowEnds, StreamedRows
from llmops_kernel.train.data.stream.plan import plan_stream
from llmops_kernel.train.data.stream.progress import StreamProgress, read_cursors, write_cursors
from llmops_kernel.train.data.stream.walk import Walk
from llmops_kernel.train.hooks import Hooks
from llmops_kernel.views.preview_facts import facts
from llmops_kernel.views.preview_text import row_head
from tests.train.data.stream.files import rows, write_jsonl

MICRO = 2
Make = Callable[..., Any]


@given(st.integers(0, 200), st.integers(8, 40))
def test_pieces_are_consecutive_full_and_never_one_token(size: int, max_length: int) -> None:
    ends = piece_ends(size, max_length)
    lengths = [end - begin for begin, end in zip([0, *ends], ends, strict=False)]
    assert sum(lengths) == size
    assert max(lengths) <= max_length
    assert set(lengths[:-2]) <= {max_length}
    if len(lengths) > 1:
        assert lengths[-1] >= 2
        assert lengths[-2] == max_length - (size % max_length == 1)


@pytest.mark.parametrize("length", [3, 7, 8, 50, 55, 56])
def test_no_token_of_a_text_is_lost(tokenizer: Any, length: int) -> None:
    data = DataConfig(train="x", max_length=8)
    text = {"text": "abcdefgh" * 10}
    text["text"] = text["text"][:length]
    done = tokenise([text], tokenizer=tokenizer, data=data, hooks=Hooks())
    whole = [*tokenizer(text["text"])["input_ids"], tokenizer.eos_token_id]
    assert [token for one in done.examples for token in one.input_ids] == whole
    assert [one.labels for one in done.examples] == [one.input_ids for one in done.examples]
    # The end of the document stands at its end only, and is learnt.
    assert done.examples[-1].labels[-1] == tokenizer.eos_token_id
    assert len(done.examples[-1].labels) > 1
    assert (done.num_cut, done.num_split) == (0, int(length + 1 > 8))


def test_chats_are_cut_and_texts_where_the_config_says(tokenizer: Any) -> None:
    chat = {"prompt": "q", "completion": "a" * 50}
    data = DataConfig(train="x", max_length=10)
    done = tokenise([chat, {"text": "a" * 50}], tokenizer=tokenizer, data=data, hooks=Hooks())
    assert (done.num_cut, done.num_split, len(done.examples)) == (1, 1, 1 + 6)
    cut = data.model_copy(update={"long_texts": "cut"})
    done = tokenise([chat, {"text": "a" * 50}], tokenizer=tokenizer, data=cut, hooks=Hooks())
    assert (done.num_cut, done.num_split, len(done.examples)) == (2, 0, 2)


def test_only_texts_can_become_several() -> None:
    assert may_divide(DataConfig(train="x"), has_hook=False)
    assert not may_divide(DataConfig(train="x", format="chat"), has_hook=False)
    assert may_divide(DataConfig(train="x", format="chat"), has_hook=True)
    assert not may_divide(DataConfig(train="x", long_texts="cut"), has_hook=True)


def test_a_run_counts_rows_and_trains_on_sequences(
    workspace: Path, tmp_path: Path, make_config: Make, tokenizer: Any
) -> None:
    write_jsonl(workspace / "texts.jsonl", rows(40))
    config = make_config(data={"train": "texts.jsonl", "max_length": 16, "eval": "texts.jsonl"})
    context = WorkerContext(run_id="test", folder=tmp_path / "run", workspace=workspace)
    loaded = load_dataset(
        config,
        DataSources(config.data, context.roots),
        tokenizer=tokenizer,
        hooks=Hooks(),
        context=context,
    )
    assert loaded.num_rows == 40
    assert len(loaded.train) > 100
    assert len(loaded.eval) == len(loaded.train)
    values = config.model_dump(mode="json")
    job = PreviewJob.model_validate({"config": values, "workspace": str(workspace)})
    found = Preview(job).all()
    assert found.epoch.sequences == len(loaded.train) == found.train.num_sequences
    assert found.epoch.tokens == loaded.num_tokens == found.train.num_tokens
    shown = {one.label: one.text for one in facts(found)}
    assert shown["long texts"].endswith(
        f"are split: 40 rows become {len(loaded.train):,} sequences"
    )
    assert "cut" not in shown
    assert "sequences, " in shown["epoch"]
    long = next(row for row in found.rows if row.num_sequences > 1)
    assert not [piece for piece in long.pieces if piece.kind == "cut"]
    assert row_head(long).endswith(f"in {long.num_sequences} sequences")
    # The first token of each sequence is not predicted.
    context_tokens = sum(len(piece.ids) for piece in long.pieces if piece.kind == "context")
    assert context_tokens == long.num_sequences
    assert long.num_loss == long.num_tokens - long.num_sequences


@given(st.lists(st.integers(1, 5), min_size=1, max_size=30), st.data())
@settings(deadline=None)
def test_the_row_of_each_example_is_known(counts: list[int], data: Any) -> None:
    first = data.draw(st.integers(0, len(counts) - 1))
    inside = data.draw(st.integers(0, counts[first] - 1))
    expected = [
        Cursor(row, piece) for row, count in enumerate(counts) for piece in range(count)
    ] + [Cursor(len(counts), 0)]
    start = sum(counts[:first]) + inside
    ends = RowEnds(start, Cursor(first, inside))
    example = sum(counts[:first])
    for count in counts[first:]:
        ends.add(example, count)
        example += count
    asked = sorted(data.draw(st.lists(st.integers(start, sum(counts)), min_size=1)))
    assert [ends.at(one) for one in asked] == [expected[one] for one in asked]


def divided(row: dict[str, Any], label: str) -> tuple[list[Example], bool]:
    """A row becomes as many examples as its number says, up to four; each fifth is broken."""
    number = int(row["text"].split()[0])
    if number % 5 == 4:
        raise DataError(f"Row {label} is broken.", remedy="correct it")
    return [Example([number, piece], [number, piece]) for piece in range(1 + number % 4)], False


@pytest.fixture
def streamed(tmp_path: Path) -> Any:
    write_jsonl(tmp_path / "data.jsonl", rows(60))
    opened = []

    def make(rank: int = 0, world: int = 1) -> StreamedRows:
        walk = Walk(
            plan_stream(Source("data.jsonl", [tmp_path])), rank, world, seed=5, num_epochs=2
        )
        opened.append(
            StreamedRows(walk, [divided], micro_batch_size=MICRO, ahead=8, skip_broken=True)
        )
        return opened[-1]

    yield make
    for one in opened:
        one.close()


def asked(streamed: StreamedRows, rank: int, world: int, batches: range) -> list[tuple[int, ...]]:
    first = [(batch * world + rank) * MICRO for batch in batches]
    found = [streamed[position] for begin in first for position in range(begin, begin + MICRO)]
    return [() if isinstance(one, Blank) else tuple(one.input_ids) for one in found]


@pytest.mark.parametrize("world", [1, 2])
def test_a_rows_pieces_stay_together_and_a_resumed_run_loses_none(
    streamed: Any, world: int
) -> None:
    everything = []
    for rank in range(world):
        mine = streamed(rank, world)
        whole = asked(mine, rank, world, range(150))
        everything += [one for one in whole if one]
        for steps in (1, 7, 13, 20):
            again = streamed(rank, world)
            asked(again, rank, world, range(steps + 3))  # It reads ahead of what is trained on.
            at = again.rows_at(steps * MICRO)
            later = streamed(rank, world)
            later.resume(steps * MICRO, at)
            assert asked(later, rank, world, range(steps, 150)) == whole[steps * MICRO :]
            assert not later.is_finished(steps * MICRO)
            assert later.is_finished(len(whole))
    numbers = [n for n in range(60) if n % 5 != 4]
    expected = [(n, piece) for n in numbers for piece in range(1 + n % 4)] * 2
    assert sorted(everything) == sorted(expected)


def test_a_checkpoint_says_where_the_rows_of_each_worker_end(streamed: Any, tmp_path: Path) -> None:
    mine = streamed()
    context = WorkerContext(run_id="test", folder=tmp_path, workspace=tmp_path)
    progress = StreamProgress(
        context, mine, rows_per_step=4, ends_with_rows=True, max_length=8, cache=tmp_path / "c"
    )
    progress.begin(0)
    whole = asked(mine, 0, 1, range(120))
    mine = streamed()
    progress.rows = mine
    asked(mine, 0, 1, range(9))
    progress.report(3)
    progress.save(tmp_path)
    (at,) = json.loads((tmp_path / "llmops_rows.json").read_text())
    assert at[0] < 12
    later = streamed()
    resumed = StreamProgress(
        context, later, rows_per_step=4, ends_with_rows=True, max_length=8, cache=tmp_path / "c"
    )
    resumed.resume(tmp_path, 3)
    resumed.begin(3)
    assert asked(later, 0, 1, range(6, 120)) == whole[12:]
    state: Any = SimpleNamespace(global_step=10, max_steps=99, epoch=None)
    control: Any = SimpleNamespace(should_training_stop=False)
    resumed.end_step(state, control, finished=False, progress=0.1)
    assert 0 < state.epoch < 2
    resumed.report(10)


def test_a_checkpoint_of_earlier_versions_has_one_example_a_row(tmp_path: Path) -> None:
    assert read_cursors(tmp_path, world=2) is None
    write_cursors(tmp_path, [Cursor(3), Cursor(2, 1)])
    assert read_cursors(tmp_path, world=2) == [Cursor(3), Cursor(2, 1)]
    assert read_cursors(tmp_path, world=3) is None
    (tmp_path / "llmops_rows.json").write_text("{")
    assert read_cursors(tmp_path, world=2) is None


def test_the_steps_of_a_stream_are_estimated_by_the_sequences_of_a_row(streamed: Any) -> None:
    mine = streamed()
    (found,) = mine.sequences_a_row([True])
    assert found == pytest.approx(2.5, abs=0.3)
    assert mine.sequences_a_row([False]) == [1.0]
