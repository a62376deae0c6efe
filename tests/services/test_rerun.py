"""Pairs of runs: which belong together, and how their figures have changed."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from scipy import stats

import llmops_kernel as llmops
from llmops_kernel import api
from llmops_kernel.errors import ConfigError, RunNotFoundError
from llmops_kernel.services.backend import Backend
from llmops_kernel.services.rerun import change_of, members
from llmops_kernel.store.journal.summary import FigureValue
from llmops_kernel.store.store import RunStore
from tests.services.run_table.stores import add
from tests.tiny_training import write_training


def figure(value: float | None, unit: str = "loss") -> FigureValue:
    return FigureValue(key="x", label="x", value=value, text="", unit=unit)


@pytest.mark.parametrize("count", [2, 3, 10, 31, 60])
def test_the_interval_is_students(count):
    before = [0.5 + 0.01 * n for n in range(count)]
    after = [value - 0.1 + 0.03 * math.sin(7 * n) for n, value in enumerate(before)]
    change = change_of([(figure(b), figure(a)) for b, a in zip(before, after, strict=True)])
    differences = [a - b for a, b in zip(after, before, strict=True)]
    low, high = stats.ttest_1samp(differences, 0.0).confidence_interval(0.95)
    assert change.change == pytest.approx(sum(differences) / count)
    assert change.interval == pytest.approx((low, high), rel=2e-3)
    assert change.is_beyond_noise == (not low <= 0 <= high)


def test_speeds_are_compared_by_their_ratio():
    pairs = [(100.0, 200.0), (50.0, 100.0), (10.0, 20.0)]
    change = change_of([(figure(b, "per_second"), figure(a, "per_second")) for b, a in pairs])
    assert change.is_ratio
    assert change.change == pytest.approx(2.0)
    assert change.is_beyond_noise


def test_one_pair_says_nothing_of_noise_and_no_number_nothing_at_all():
    change = change_of([(figure(0.5), figure(0.25)), (figure(None), figure(0.25))])
    assert (change.num_pairs, change.change, change.interval) == (1, -0.25, None)
    assert change.is_beyond_noise is None
    assert change_of([(figure(None), figure(1.0))]) is None
    same = change_of([(figure(0.5), figure(0.5))] * 3)
    assert same.is_beyond_noise is False


@pytest.fixture
def store(home: Path) -> RunStore:
    return RunStore()


def test_members_are_of_a_group_or_have_a_tag(store):
    for number in range(4):
        add(store, f"run-{number}", created_s=float(number))
    llmops.attach("run-1").group = "baseline"
    llmops.attach("run-3").group = "baseline"
    llmops.attach("run-2").tag("paper")
    assert [each.run_id for each in members(store, group="baseline")] == ["run-1", "run-3"]
    assert [each.run_id for each in members(store, tag="paper")] == ["run-2"]
    assert [run.id for run in llmops.runs("group == 'baseline'")] == ["run-3", "run-1"]
    with pytest.raises(RunNotFoundError, match="baselin") as raised:
        members(store, group="baselin")
    assert "baseline" in raised.value.remedy


def test_what_is_wrong_with_each_run_comes_before_any_starts(store, tmp_path):
    folder = write_training(tmp_path / "workspace", "tiny").parent
    llmops_config = llmops.TrainingConfig(model="tiny-llama", data={"train": "rows.jsonl"})
    config = llmops_config.model_dump(mode="json")
    add(store, "run-1", config=config, workspace_root=str(folder))
    add(store, "run-2", config=config, workspace_root=str(tmp_path / "gone"))
    add(store, "run-3", config={"model": 3}, workspace_root=str(folder))
    records = [store.record(f"run-{number}") for number in (1, 2, 3)]
    with pytest.raises(ConfigError) as raised:
        api.Rerun(Backend(store=store), records, into="again")
    assert "run-2" in str(raised.value)
    assert "run-3" in str(raised.value)
    assert "run-1" not in str(raised.value)


def test_pairs_are_found_again_by_their_parent(store, tmp_path):
    folder = write_training(tmp_path / "workspace", "tiny").parent
    tiny = llmops.TrainingConfig(model="tiny-llama", data={"train": "rows.jsonl"})
    config = tiny.model_dump(mode="json")
    for number in (1, 2, 3):
        values = {"config": config, "workspace_root": str(folder), "created_s": float(number)}
        add(store, f"old-{number}", loss=0.5, **values)
    add(store, "new-1", loss=0.25, parent="old-1", config=config)
    add(store, "new-2", loss=0.75, parent="old-2", config=config, state="FAILED")
    add(store, "else-1", loss=0.75, parent="old-3", config=config)
    store.annotate("new-1", group="again")
    store.annotate("new-2", group="again")
    records = [store.record(f"old-{number}") for number in (1, 2, 3)]
    again = api.Rerun(Backend(store=store), records, into="again")
    assert [(each.after, each.state, each.is_compared) for each in again.pairs()] == [
        ("new-1", "SUCCEEDED", True),
        ("new-2", "FAILED", False),
        (None, "WAITING", False),
    ]
    assert "-0.25" in repr(again)
