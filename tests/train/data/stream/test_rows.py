"""Streamed rows as the Trainer asks for them: read ahead, blank at the end, broken rows named."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from llmops_kernel.errors import DataError, HookError, TrainingError
from llmops_kernel.train.data.examples import IGNORED, Blank, Example
from llmops_kernel.train.data.sources import Source
from llmops_kernel.train.data.stream.dataset import StreamedRows
from llmops_kernel.train.data.stream.plan import plan_stream
from llmops_kernel.train.data.stream.walk import Walk
from tests.messages import missing
from tests.train.data.stream.files import rows, write_jsonl, write_parquet

MICRO = 4


def tokenise(row: dict[str, Any], label: str) -> tuple[list[Example], bool]:
    """One token a row: its number. Numbers divisible by 5 have no label, by 7 are cut."""
    if "text" not in row:
        raise DataError(f"Row {label}: has only the keys {sorted(row)}.", remedy="write a text")
    number = int(row["text"].split()[0])
    labels = [IGNORED, IGNORED if number % 5 == 0 else number]
    return [Example([number, number], labels)], number % 7 == 0


Open = Callable[..., StreamedRows]


@pytest.fixture
def streamed(tmp_path: Path) -> Any:
    opened: list[StreamedRows] = []

    def make(source: str, *, rank: int = 0, world: int = 1, **more: Any) -> StreamedRows:
        names = {"num_epochs", "shuffle"}
        walk = Walk(
            plan_stream(Source(source, [tmp_path])),
            rank,
            world,
            seed=5,
            **{name: value for name, value in more.items() if name in names},
        )
        rest = {name: value for name, value in more.items() if name not in names}
        settings = {"ahead": 8, **rest, "tokenise": [rest.get("tokenise", tokenise)]}
        opened.append(StreamedRows(walk, micro_batch_size=MICRO, **settings))
        return opened[-1]

    yield make
    for one in opened:
        one.close()
    assert not [one for one in threading.enumerate() if one.name == "llmops-rows"]


def asked(streamed: StreamedRows, rank: int, world: int, batches: range) -> list[Example]:
    """Ask for batches as Accelerate deals them to a rank."""
    first = [(batch * world + rank) * MICRO for batch in batches]
    return [streamed[position] for begin in first for position in range(begin, begin + MICRO)]


def numbers(examples: list[Example]) -> list[int]:
    return [one.input_ids[0] for one in examples if not isinstance(one, Blank)]


def test_two_ranks_get_all_rows_once_and_then_blank_ones(tmp_path: Path, streamed: Open) -> None:
    write_jsonl(tmp_path / "data.jsonl", rows(101))
    found = []
    for rank in range(2):
        mine = streamed("data.jsonl", rank=rank, world=2, num_epochs=1)
        examples = asked(mine, rank, 2, range(20))
        assert len(examples) == 80
        count = len(numbers(examples))
        assert all(isinstance(one, Blank) for one in examples[count:])
        assert all(label == IGNORED for one in examples[count:] for label in one.labels)
        assert [mine.is_finished(count - 1), mine.is_finished(count)] == [False, True]
        assert mine.epoch_at(count) == 1.0
        assert 0 < mine.epoch_at(count // 2) < 1
        found += numbers(examples)
    assert sorted(found) == [*range(101)]


def test_the_last_row_is_known_to_be_the_last_when_it_is_handed_out(
    tmp_path: Path, streamed: Open
) -> None:
    """Else the Trainer would make one more step, of blank rows only."""
    write_jsonl(tmp_path / "data.jsonl", rows(40))
    mine = streamed("data.jsonl", num_epochs=1, ahead=1)
    for count in range(1, 41):
        mine[count - 1]
        assert mine.is_finished(count) == (count == 40)


def test_a_resumed_trainer_continues_and_tokenises_nothing_before(
    tmp_path: Path, streamed: Open
) -> None:
    write_parquet(tmp_path / "data.parquet", rows(200), group=30)
    whole = numbers(asked(streamed("data.parquet", num_epochs=1), 0, 1, range(50)))
    seen: list[str] = []

    def noted(row: dict[str, Any], label: str) -> tuple[list[Example], bool]:
        seen.append(row["text"])
        return tokenise(row, label)

    later = streamed("data.parquet", num_epochs=1, tokenise=noted)
    assert numbers(asked(later, 0, 1, range(40, 50))) == whole[160:]
    assert len(seen) == 40


def test_rows_are_read_ahead_only_so_far(tmp_path: Path, streamed: Open) -> None:
    write_jsonl(tmp_path / "data.jsonl", rows(500))
    enough = threading.Semaphore(0)

    def noted(row: dict[str, Any], label: str) -> tuple[list[Example], bool]:
        enough.release()
        return tokenise(row, label)

    mine = streamed("data.jsonl", tokenise=noted, ahead=8)
    mine[0]
    # The row handed out, 8 in the queue, and one that waits for a place.
    for _ in range(10):
        assert enough.acquire(timeout=30)
    assert not enough.acquire(timeout=0.5)


def test_another_way_of_dealing_batches_is_refused(tmp_path: Path, streamed: Open) -> None:
    write_jsonl(tmp_path / "data.jsonl", rows(50))
    with pytest.raises(TrainingError, match="worker 0 for a batch of worker 1"):
        streamed("data.jsonl", world=2)[MICRO]


def test_a_broken_line_of_a_text_is_named(tmp_path: Path, streamed: Open) -> None:
    (tmp_path / "data.txt").write_bytes(b"0\r\n\n1\ncaf\xe9\n3\n")
    mine = streamed("data.txt", shuffle=False, skip_broken=True, num_epochs=1)
    assert numbers(asked(mine, 0, 1, range(1))) == [0, 1, 3]
    (skipped,) = mine.trained(4)
    assert missing(skipped.message, "data.txt, row 4", "UTF-8") == []


BROKEN = {
    "json": ('{"text": "12 ', "data.jsonl, row 13 is not valid JSON"),
    "list": ("[1, 2]", "data.jsonl, row 13 is a list where an object is needed"),
    "shape": ('{"txet": "12"}', "data.jsonl, row 13: has only the keys ['txet']"),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_row_fails_with_its_file_and_row(
    tmp_path: Path, streamed: Open, kind: str
) -> None:
    line, words = BROKEN[kind]
    write_jsonl(tmp_path / "data.jsonl", [*map(json.dumps, rows(12)), line])
    mine = streamed("data.jsonl", shuffle=False)
    assert numbers([mine[position] for position in range(12)]) == [*range(12)]
    with pytest.raises(DataError) as caught:
        mine[12]
    assert words in caught.value.message
    assert caught.value.remedy


def test_broken_rows_are_skipped_and_counted_where_they_stand(
    tmp_path: Path, streamed: Open
) -> None:
    data = [*map(json.dumps, rows(12)), "{", *map(json.dumps, rows(12, 13)), "[]"]
    write_jsonl(tmp_path / "data.jsonl", data)
    mine = streamed("data.jsonl", shuffle=False, skip_broken=True, num_epochs=1)
    examples = asked(mine, 0, 1, range(7))
    assert isinstance(examples[12], Blank)
    assert numbers(examples) == [*range(12), *range(13, 25)]
    assert mine.is_finished(26)
    assert mine.trained(12) == []
    (first,) = mine.trained(13)
    assert (first.position, "row 13" in first.message) == (12, True)
    (second,) = mine.trained(26)
    assert "row 26" in second.message
    assert mine.trained(26) == []
    assert mine.seen.num_cut == 4  # 0, 7, 14, 21
    assert mine.seen.num_empty == 5  # 0, 5, 10, 15, 20


def test_an_error_of_the_users_hook_is_raised_also_when_broken_rows_are_skipped(
    tmp_path: Path, streamed: Open
) -> None:
    write_jsonl(tmp_path / "data.jsonl", rows(9))

    def hook(row: dict[str, Any], label: str) -> tuple[list[Example], bool]:
        raise HookError(f"The hook raised KeyError on row {label}: 'x'", remedy="see hooks.py:3")

    mine = streamed("data.jsonl", tokenise=hook, skip_broken=True, shuffle=False)
    with pytest.raises(HookError, match=r"on data\.jsonl, row 1: 'x'"):
        mine[0]


def test_the_sample_is_the_same_on_all_workers_and_finds_a_wrong_format(
    tmp_path: Path, streamed: Open
) -> None:
    write_jsonl(tmp_path / "data.jsonl", rows(50))
    samples = [streamed("data.jsonl", rank=rank, world=2).sample(9) for rank in range(2)]
    assert numbers(samples[0]) == numbers(samples[1]) == [*range(9)]
    write_jsonl(tmp_path / "wrong.jsonl", [{"txt": "a"}] * 20)
    with pytest.raises(DataError, match=r"wrong\.jsonl, row 1: has only the keys"):
        streamed("wrong.jsonl").sample(9)
    with pytest.raises(DataError, match="are all broken"):
        streamed("wrong.jsonl", skip_broken=True).sample(9)
