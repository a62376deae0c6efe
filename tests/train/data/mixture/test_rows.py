"""Rows of several sources in memory: each is seen exactly `weight` times an epoch."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmops_kernel.errors import DataError
from llmops_kernel.train.context import WorkerContext
from llmops_kernel.train.data.dataset import Dataset, load_dataset
from llmops_kernel.train.data.examples import Example
from llmops_kernel.train.data.identity import identity
from llmops_kernel.train.data.mixture import MixedRows, draws
from llmops_kernel.train.data.sources import DataSources
from llmops_kernel.train.hooks import Hooks
from llmops_kernel.train.trainer import EpochOfMixture
from tests.train.data.stream.files import rows, write_jsonl

WEIGHTS = st.one_of(
    st.integers(1, 5).map(float), st.sampled_from([0.1, 0.25, 0.3, 0.5, 0.75, 1.5, 2.25])
)


def mixed(sizes: list[int], weights: list[float], *, seed: int = 7, shuffle: bool = True) -> Any:
    sources = [[(source, row) for row in range(size)] for source, size in enumerate(sizes)]
    return MixedRows(sources, weights, seed=seed, shuffle=shuffle)


def epochs(found: Any, count: int) -> list[Counter[tuple[int, int]]]:
    counted = []
    for epoch in range(count):
        found.set_epoch(epoch)
        counted.append(Counter(found))
    return counted


@given(
    sources=st.lists(st.tuples(st.integers(1, 30), WEIGHTS), min_size=1, max_size=4),
    seed=st.integers(0, 3),
    shuffle=st.booleans(),
)
@settings(max_examples=80, deadline=None)
def test_an_epoch_has_each_row_weight_times(sources: Any, seed: int, shuffle: bool) -> None:
    sizes, weights = [size for size, _ in sources], [weight for _, weight in sources]
    found = mixed(sizes, weights, seed=seed, shuffle=shuffle)
    each = epochs(found, 5)
    for number, (size, weight) in enumerate(sources):
        count = draws(size, weight)
        assert abs(count - weight * size) <= 0.5 or count == 1
        for epoch in each:
            seen = [epoch[number, row] for row in range(size)]
            assert sum(seen) == count
            assert set(seen) <= {count // size, math.ceil(count / size)}
            if weight == int(weight):
                assert set(seen) == {int(weight)}
        # Over all epochs no row gets ahead of the others by more than one.
        every = sum(each, Counter())
        total = [every[number, row] for row in range(size)]
        assert max(total) - min(total) <= 1
    assert len(found) == sum(found.counts)
    assert epochs(mixed(sizes, weights, seed=seed, shuffle=shuffle), 5) == each


def test_half_of_the_rows_and_the_other_half_in_the_next_epoch() -> None:
    first, second, third, fourth = epochs(mixed([40], [0.5]), 4)
    assert len(first) == len(second) == 20
    assert not set(first) & set(second)
    assert (third, fourth) == (first, second)
    assert set(first) != {(0, row) for row in range(20)}  # Drawn, not the first ones.
    assert set(first) != set(epochs(mixed([40], [0.5], seed=8), 1)[0])


def test_an_epoch_can_be_asked_for_without_the_ones_before() -> None:
    found = mixed([10, 7], [0.3, 1.5])
    every = epochs(found, 6)
    found.set_epoch(4)
    assert Counter(found) == every[4]


def test_what_the_rows_are_does_not_depend_on_the_epoch() -> None:
    found = held(5, 3)
    before = identity(found)
    found.train.set_epoch(3)
    assert identity(found) == before == identity(held(5, 3))
    assert before["rows"] == 8
    assert identity(held(5, 4)) != before


def held(*sizes: int) -> Any:
    sources = [[Example([row], [row]) for row in range(size)] for size in sizes]
    mixed_rows = MixedRows(sources, [0.5, 2.0], seed=1)
    return SimpleNamespace(stream=None, train=mixed_rows)


def test_it_is_a_sequence() -> None:
    found = mixed([3, 2], [1.0, 2.0])
    assert list(found) == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 0), (1, 1)]
    assert found[-1] == (1, 1)
    assert found[2:4] == [(0, 2), (1, 0)]
    with pytest.raises(IndexError):
        found[7]
    assert [source for source, _ in mixed([100, 100], [1.0, 1.0]).spread(4)] == [0, 0, 1, 1]


def test_the_trainer_names_the_epoch_also_when_it_resumes_in_the_middle() -> None:
    found = mixed([40], [0.5])
    every = epochs(found, 3)
    for epoch, expected in ((None, 0), (0.0, 0), (1.0, 1), (2.75, 2)):
        EpochOfMixture(found).on_epoch_begin(None, SimpleNamespace(epoch=epoch), None)
        assert Counter(found) == every[expected]


Load = Callable[..., Dataset]


@pytest.fixture
def load(workspace: Path, tmp_path: Path, make_config: Any, tokenizer: Any) -> Load:
    def load(train: Any, **data: Any) -> Dataset:
        context = WorkerContext(
            run_id="test", folder=tmp_path / "run", workspace=workspace, cache=tmp_path / "cache"
        )
        config = make_config(data={"train": train, **data})
        return load_dataset(
            config,
            DataSources(config.data, context.roots),
            tokenizer=tokenizer,
            hooks=Hooks(),
            context=context,
        )

    return load


def test_sources_have_formats_and_columns_of_their_own(load: Load, workspace: Path) -> None:
    write_jsonl(workspace / "texts.jsonl", [{"body": f"text {n}"} for n in range(10)])
    text = {"path": "texts.jsonl", "weight": 0.5, "format": "text", "columns": {"text": "body"}}
    alone = load("train.jsonl")
    both = load([{"path": "train.jsonl", "weight": 2}, text])
    assert len(both.train) == 2 * 64 + 5
    assert both.num_rows == 2 * 64 + 5
    assert both.num_tokens is not None
    assert 2 * (alone.num_tokens or 0) < both.num_tokens < 2.2 * (alone.num_tokens or 0)
    assert list(both.train)[:64] == list(alone.train)
    assert 0 < len(both.sample) <= 133


def test_packing_keeps_sources_apart_and_their_weights(load: Load, workspace: Path) -> None:
    write_jsonl(workspace / "texts.jsonl", rows(40))
    train = ["train.jsonl", {"path": "texts.jsonl", "weight": 2}]
    packed = load(train, packing=True, max_length=256)
    alone = [load(one, packing=True, max_length=256) for one in ("train.jsonl", "texts.jsonl")]
    assert len(packed.train) == len(alone[0].train) + 2 * len(alone[1].train)


def test_tokens_of_each_source_are_kept_for_the_next_run(load: Load, workspace: Path) -> None:
    write_jsonl(workspace / "large.jsonl", rows(4000))
    first = load(["train.jsonl", {"path": "large.jsonl", "format": "text", "weight": 0.5}])
    assert not first.is_kept
    again = load(["train.jsonl", {"path": "large.jsonl", "format": "text", "weight": 2}])
    assert again.is_kept
    # The weight is not part of what is kept, nor are the other sources.
    assert load("large.jsonl", format="text").is_kept
    assert not load("large.jsonl").is_kept


def test_a_limit_is_one_of_each_source(load: Load, workspace: Path) -> None:
    write_jsonl(workspace / "texts.jsonl", rows(40))
    assert len(load(["train.jsonl", "texts.jsonl"], max_rows=10).train) == 20


def test_errors_name_the_source(load: Load, workspace: Path) -> None:
    write_jsonl(workspace / "texts.jsonl", [{"txt": "a"}])
    with pytest.raises(DataError, match=r"^texts\.jsonl: Row 1.* has only the keys txt"):
        load(["train.jsonl", "texts.jsonl"])
    with pytest.raises(DataError, match=r"^texts\.jsonl: Row 1"):
        load("texts.jsonl")
    with pytest.raises(DataError, match=r"gone\.jsonl"):
        load(["train.jsonl", "gone.jsonl"])
