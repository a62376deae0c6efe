"""Several sources, streamed: each row weight times an epoch, in proportion, from any place on."""

from __future__ import annotations

from collections import Counter
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmops_kernel.errors import DataError
from llmops_kernel.train.data.sources import Source
from llmops_kernel.train.data.stream.mix import Mix, source_seed, window_bytes
from llmops_kernel.train.data.stream.plan import StreamPlan, plan_stream
from llmops_kernel.train.data.stream.walk import Walk
from tests.train.data.stream.files import rows, write_jsonl, write_parquet

SIZES, WEIGHTS, SEED = (120, 60, 7), (1.0, 0.5, 3.0), 5
IN_EPOCH = 120 + 30 + 21
Row = tuple[int, int]


@pytest.fixture(scope="module")
def plans(tmp_path_factory: pytest.TempPathFactory) -> list[StreamPlan]:
    """JSONL whose lines are not counted, Parquet, and a few counted lines of JSONL."""
    folder = tmp_path_factory.mktemp("mix")
    write_jsonl(folder / "a.jsonl", rows(SIZES[0]), blank_every=7)
    write_parquet(folder / "b.parquet", rows(SIZES[1]), group=11)
    write_jsonl(folder / "c.jsonl", rows(SIZES[2]))
    return [
        plan_stream(Source(name, [folder]), counted=name == "c.jsonl")
        for name in ("a.jsonl", "b.parquet", "c.jsonl")
    ]


def mix(
    plans: list[StreamPlan],
    rank: int = 0,
    world: int = 1,
    *,
    num_epochs: int | None = 2,
    shuffle: bool = True,
    small: int = 1500,
) -> Mix:
    """A mix with windows of a few parts."""
    return Mix(
        [
            Walk(
                plan,
                rank,
                world,
                seed=source_seed(SEED, number),
                shuffle=shuffle,
                num_epochs=num_epochs,
                weight=weight,
                window_bytes=small,
                turn=number,
            )
            for number, (plan, weight) in enumerate(zip(plans, WEIGHTS, strict=False))
        ],
        SEED,
    )


def taken(found: Mix, start: int = 0, count: int | None = None) -> list[Row]:
    """Return source and number of each row."""
    return [
        (one.source, int(one.decode()["text"].split()[0]))
        for one in islice(found.rows(start), count)
    ]


@pytest.mark.parametrize("world", [1, 2, 3])
@pytest.mark.parametrize("shuffle", [True, False])
def test_an_epoch_is_the_same_multiset_on_any_number_of_workers(
    plans: list[StreamPlan], world: int, shuffle: bool
) -> None:
    ways = [mix(plans, rank, world, shuffle=shuffle) for rank in range(world)]
    both = [taken(way) for way in ways]
    first = [taken(mix(plans, r, world, num_epochs=1, shuffle=shuffle)) for r in range(world)]
    assert [own[: len(one)] for own, one in zip(both, first, strict=True)] == first
    epoch = Counter(row for one in first for row in one)
    assert sum(epoch.values()) == IN_EPOCH
    assert {epoch[0, row] for row in range(120)} == {1}
    assert {epoch[2, row] for row in range(7)} == {3}
    assert sum(epoch[1, row] for row in range(60)) == 30
    # The other half of the second source is in the other epoch.
    every = Counter(row for one in both for row in one)
    assert {every[1, row] for row in range(60)} == {1}
    assert [way.end for way in ways] == [len(one) for one in both]
    assert epoch == Counter(row for row in taken(mix(plans, num_epochs=1, shuffle=shuffle)))


def test_no_stretch_is_of_one_source_only(plans: list[StreamPlan]) -> None:
    for rank in range(2):
        found = [source for source, _ in taken(mix(plans, rank, 2, num_epochs=1))]
        for begin in range(0, len(found) - 20, 10):
            share = Counter(found[begin : begin + 20])
            assert share[0] < 18
            assert share[1] >= 2
    plain = [source for source, _ in taken(mix(plans, num_epochs=1, shuffle=False))]
    assert plain == sorted(plain)


@given(start=st.integers(0, 2 * IN_EPOCH + 3), world=st.integers(1, 3), known=st.booleans())
@settings(max_examples=40, deadline=None)
def test_a_resumed_run_continues_the_same_rows(
    plans: list[StreamPlan], start: int, world: int, known: bool
) -> None:
    first = mix(plans, world - 1, world)
    whole = taken(first)
    again = mix(plans, world - 1, world)
    if known:  # The lines of an earlier attempt are counted already.
        for one, other in zip(again.walks, first.walks, strict=True):
            one.counts = dict(other.counts)
    assert taken(again, start) == whole[start:]
    assert again.end == len(whole)
    assert again.epoch_at(start) == first.epoch_at(start)


@given(cuts=st.lists(st.integers(1, 340), min_size=1, max_size=6), start=st.integers(0, 200))
@settings(max_examples=40, deadline=None)
def test_the_epoch_is_known_at_any_row(
    plans: list[StreamPlan], cuts: list[int], start: int
) -> None:
    whole = taken(mix(plans))
    way = mix(plans)
    reading = way.rows(start)
    done = start
    for cut in sorted({min(max(cut, start), len(whole)) for cut in cuts}):
        done += len(list(islice(reading, cut + 1 - done)))  # One more, as the thread reads ahead.
        epoch = way.epoch_at(cut)
        assert cut // IN_EPOCH <= epoch <= -(-cut // IN_EPOCH)
        assert epoch == pytest.approx(cut / IN_EPOCH, abs=0.12)
    list(reading)
    assert way.epoch_at(len(whole)) == 2.0
    assert way.epoch_at(len(whole) + 5) == 2.0
    assert way.epoch_at(IN_EPOCH) == 1.0


def test_without_an_end_the_epochs_follow_each_other(plans: list[StreamPlan]) -> None:
    way = mix(plans, num_epochs=None)
    endless = taken(way, count=2 * IN_EPOCH + 10)
    assert endless[: 2 * IN_EPOCH] == taken(mix(plans))
    assert way.end is None
    assert way.epoch_at(2 * IN_EPOCH) == 2.0


def test_one_source_is_read_as_ever(plans: list[StreamPlan]) -> None:
    walk = Walk(plans[0], 0, 2, seed=SEED, num_epochs=2)
    alone = [(0, int(one.decode()["text"].split()[0])) for one in walk.rows()]
    way = Mix([Walk(plans[0], 0, 2, seed=SEED, num_epochs=2)], SEED)
    assert taken(way) == alone
    assert (way.end, way.plan) == (len(alone), plans[0])


def test_a_worker_without_rows_is_an_error_not_an_endless_loop(tmp_path: Path) -> None:
    for name in "ab":
        write_jsonl(tmp_path / f"{name}.jsonl", rows(1))
    few = [plan_stream(Source(f"{name}.jsonl", [tmp_path]), counted=True) for name in "ab"]
    empty = [way for way in (mix(few, rank, 3) for rank in range(3)) if not has_rows(way)]
    assert empty
    with pytest.raises(DataError, match=r"a\.jsonl, b\.jsonl has too few rows"):
        taken(empty[0])


def has_rows(way: Mix) -> bool:
    return any(window for walk in way.walks for window in walk.windows_of(0))


def test_what_is_in_memory_is_divided_by_the_bytes_of_an_epoch(plans: list[StreamPlan]) -> None:
    sizes = window_bytes(plans, WEIGHTS)
    assert sum(sizes) == pytest.approx(32 << 20, rel=0.01)
    assert sizes == sorted(sizes, reverse=True)


def test_the_files_of_all_sources_are_one_plan_with_their_sources(
    plans: list[StreamPlan],
) -> None:
    found = mix(plans).plan
    assert [file.name for file in found.files] == [
        "1, a.jsonl: a.jsonl",
        "2, b.parquet: b.parquet",
        "3, c.jsonl: c.jsonl",
    ]
    assert found.fingerprint == "-".join(plan.fingerprint for plan in plans)
