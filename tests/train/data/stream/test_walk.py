"""A worker's way through each format: all rows once, and from any position on the same."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest
from fsspec.implementations.memory import MemoryFileSystem
from hypothesis import given, settings
from hypothesis import strategies as st

from llmops_kernel.errors import DataError
from llmops_kernel.train.data.sources import Source
from llmops_kernel.train.data.stream import plan as planning
from llmops_kernel.train.data.stream.order import StreamPart
from llmops_kernel.train.data.stream.plan import (
    StreamPlan,
    estimated_rows,
    load_counts,
    plan_stream,
    save_counts,
)
from llmops_kernel.train.data.stream.reader import place, read
from llmops_kernel.train.data.stream.walk import Walk
from tests.train.data.stream.files import (
    rows,
    save_with_datasets,
    write_jsonl,
    write_parquet,
    write_text,
)

COUNT = 300


@pytest.fixture(params=["jsonl", "text", "parquet", "arrow", "folder"])
def plan(request: pytest.FixtureRequest, tmp_path: Path) -> StreamPlan:
    if request.param == "jsonl":
        write_jsonl(tmp_path / "data.jsonl", rows(COUNT), blank_every=7)
        return plan_stream(Source("data.jsonl", [tmp_path]))
    if request.param == "text":
        write_text(tmp_path / "data.txt", rows(COUNT), blank_every=7)
        return plan_stream(Source("data.txt", [tmp_path]))
    if request.param == "arrow":
        save_with_datasets(tmp_path / "data", rows(COUNT), shards=2)
        return plan_stream(Source("data", [tmp_path]))
    if request.param == "parquet":
        write_parquet(tmp_path / "data.parquet", rows(COUNT), group=13)
        return plan_stream(Source("data.parquet", [tmp_path]))
    write_jsonl(tmp_path / "data" / "a.jsonl", rows(100))
    write_parquet(tmp_path / "data" / "b.parquet", rows(120, 100), group=50)
    write_jsonl(tmp_path / "data" / "sub" / "c.jsonl", rows(80, 220), blank_every=3)
    return plan_stream(Source("data", [tmp_path]))


def numbers(walk: Walk, start: int = 0, count: int | None = None) -> list[int]:
    """Return the numbers that the rows carry."""
    found = islice(walk.rows(start), count)
    return [int(located.decode()["text"].split()[0]) for located in found]


def numbers_or_none(walk: Walk) -> list[int]:
    try:
        return numbers(walk, count=3)
    except DataError:
        return []


def walks(plan: StreamPlan, world: int, **more: object) -> list[Walk]:
    return [Walk(plan, rank, world, seed=5, **more) for rank in range(world)]  # type: ignore[arg-type]


@pytest.mark.parametrize("world", [1, 2, 3])
@pytest.mark.parametrize("shuffle", [True, False])
def test_each_row_is_read_by_one_worker_once_an_epoch(
    plan: StreamPlan, world: int, shuffle: bool
) -> None:
    epochs = walks(plan, world, num_epochs=2, shuffle=shuffle)
    shares = [numbers(walk) for walk in epochs]
    assert sorted(number for share in shares for number in share) == sorted([*range(COUNT)] * 2)
    assert [walk.end for walk in epochs] == [len(share) for share in shares]
    first = [numbers(walk) for walk in walks(plan, world, num_epochs=1, shuffle=shuffle)]
    assert sorted(number for share in first for number in share) == [*range(COUNT)]
    assert [share[: len(one)] for share, one in zip(shares, first, strict=True)] == first


def test_a_walk_from_any_position_continues_the_same_rows(plan: StreamPlan) -> None:
    whole = numbers(Walk(plan, 1, 2, seed=5, num_epochs=2))
    for start in (0, 1, 77, len(whole) - 1, len(whole), len(whole) + 5):
        walk = Walk(plan, 1, 2, seed=5, num_epochs=2)
        assert numbers(walk, start) == whole[start:]
        assert walk.end == len(whole)


def test_counts_of_an_earlier_attempt_change_nothing_about_the_order(
    plan: StreamPlan, tmp_path: Path
) -> None:
    first = Walk(plan, 0, 1, seed=5, num_epochs=1)
    whole = numbers(first)
    save_counts(plan, first.counts, tmp_path / "cache")
    known = load_counts(plan, tmp_path / "cache")
    assert known == first.counts
    assert numbers(Walk(plan, 0, 1, seed=5, num_epochs=1, counts=known), 250) == whole[250:]
    unread = sum(part.num_rows or 0 for part in plan.parts)
    assert sum(known.values()) == COUNT - unread


def test_without_an_end_the_epochs_follow_each_other(plan: StreamPlan) -> None:
    endless = numbers(Walk(plan, 0, 1, seed=5), count=2 * COUNT + 10)
    assert endless[: 2 * COUNT] == numbers(Walk(plan, 0, 1, seed=5, num_epochs=2))
    walk = Walk(plan, 0, 1, seed=5)
    numbers(walk, count=COUNT + 1)
    assert walk.end is None
    assert walk.spans[-1].window.epoch == 1


def test_a_worker_without_rows_is_an_error_not_an_endless_loop(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "one.jsonl", rows(1))
    plan = plan_stream(Source("one.jsonl", [tmp_path]))
    first, second = walks(plan, 2)
    empty = second if numbers_or_none(first) else first
    with pytest.raises(DataError, match=r"worker [01] has none") as caught:
        numbers(empty, count=3)
    assert "streaming=false" in caught.value.remedy


@given(
    lengths=st.lists(st.integers(0, 60), min_size=1, max_size=60),
    part=st.integers(1, 80),
    ends=st.booleans(),
)
@settings(max_examples=150, deadline=None)
def test_lines_belong_to_the_byte_range_they_begin_in(
    tmp_path_factory: pytest.TempPathFactory, lengths: list[int], part: int, ends: bool
) -> None:
    """Any cut, through any line, in ranges shorter or longer than the lines."""
    folder = tmp_path_factory.mktemp("cuts")
    lines = [
        f'{{"n": {n}, "x": "{"y" * length}"}}' if length else "" for n, length in enumerate(lengths)
    ]
    text = "\n".join(lines) + ("\n" if ends else "")
    (folder / "data.jsonl").write_text(text)
    if not text:
        return
    files = plan_stream(Source("data.jsonl", [folder])).files
    parts = [
        StreamPart(n, 0, offset, min(part, len(text) - offset))
        for n, offset in enumerate(range(0, len(text), part))
    ]
    found = []
    for one in parts:
        held = read(files, one)
        for number in range(len(held)):
            row = held.row(number, "")
            found.append(row["n"])
            assert place(files, one, number) == f"data.jsonl, row {row['n'] + 1:,}"
    assert found == [n for n, length in enumerate(lengths) if length]


def test_files_that_cannot_be_divided_are_refused(tmp_path: Path) -> None:
    (tmp_path / "data.csv").write_text("text\na\n")
    folder = save_with_datasets(tmp_path / "saved", rows(9), shards=1)
    (shard,) = folder.glob("*.arrow")
    MemoryFileSystem().pipe("/divided/data.arrow", shard.read_bytes())
    url = "memory://divided/data.arrow"
    for source, what in (("data.csv", "a csv file"), (url, "an Arrow file at a URL")):
        with pytest.raises(DataError, match=f"is {what}, which is not streamed") as caught:
            plan_stream(Source(source, [tmp_path]))
        assert "Parquet" in caught.value.remedy


def test_a_folder_saved_by_datasets_has_the_splits_that_it_was_saved_with(tmp_path: Path) -> None:
    for split in ("test", "other"):
        save_with_datasets(tmp_path / "saved" / split, rows(9), shards=1)
        (tmp_path / "saved" / "dataset_dict.json").touch()
        with pytest.raises(DataError, match="split") as caught:
            plan_stream(Source("saved", [tmp_path]))
        assert split in caught.value.remedy or split in caught.value.message
    plan = plan_stream(Source("saved", [tmp_path], "other"))
    assert [file.name.partition("/")[0] for file in plan.files] == ["other"]


def test_a_plan_reads_nothing_of_jsonl_and_knows_a_changed_file(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "data.jsonl", rows(COUNT))
    before = plan_stream(Source("data.jsonl", [tmp_path]))
    assert before == plan_stream(Source("data.jsonl", [tmp_path]))
    assert sum(part.num_bytes for part in before.parts) == path.stat().st_size
    write_jsonl(path, rows(COUNT + 1))
    assert plan_stream(Source("data.jsonl", [tmp_path])).fingerprint != before.fingerprint


def test_the_footers_of_parquet_are_kept_for_the_next_run(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "data.parquet", rows(COUNT), group=13)
    cache = tmp_path / "cache"
    before = plan_stream(Source("data.parquet", [tmp_path]), cache=cache)
    stamp = path.stat()
    path.write_bytes(b"x" * stamp.st_size)  # What is there now is not looked at.
    import os

    os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    assert plan_stream(Source("data.parquet", [tmp_path]), cache=cache) == before


def test_rows_are_estimated_from_parts_all_over_the_data(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "data.jsonl", rows(5000))
    plan = plan_stream(Source("data.jsonl", [tmp_path]))
    assert len(plan.parts) > 100
    counts: dict[int, int] = {}
    found, is_exact = estimated_rows(plan, counts)
    assert (len(counts), is_exact) == (16, False)
    assert found == pytest.approx(5000, rel=0.05)
    walk = Walk(plan, 0, 1, seed=1, num_epochs=1, counts=counts)
    numbers(walk)
    assert estimated_rows(plan, walk.counts) == (5000, True)


def test_the_parts_of_large_data_have_a_size_of_their_own() -> None:
    assert planning.part_bytes(20 << 30) == 512 << 10
    assert planning.part_bytes(20 << 30, division=1) == 4 << 20
    assert planning.part_bytes(512 << 30) == 2 << 20  # No more parts than memory is for.
    assert planning.part_bytes(1 << 20) == 4 << 10
    assert planning.part_bytes(100) == 1 << 10
