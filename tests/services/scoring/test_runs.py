"""Which runs have rows to compare, and where their outputs are."""

from __future__ import annotations

from pathlib import Path

import pytest

from llmops_kernel.errors import ComparisonError
from llmops_kernel.services.comparison import compare_outputs, has_rows
from llmops_kernel.services.scoring.runs import output_url
from llmops_kernel.store.store import RunStore
from tests.server.runs import make_run
from tests.services.scoring.outputs import scored, scored_run, write_output

ROWS = [scored(i, "a", id=f"k{i}", metric_exact_match=1.0) for i in range(4)]


def test_two_runs_are_compared_the_older_first(store: RunStore) -> None:
    scored_run(store, "new", ROWS, created_s=2.0)
    scored_run(store, "old", ROWS, created_s=1.0)
    assert has_rows(store, ["new", "old"])
    found = compare_outputs(store, ["new", "old"]).difference
    assert (found.before, found.after) == ("old", "new")
    assert found.counts["all"] == 4


def test_the_configs_key_joins(store: RunStore) -> None:
    scored_run(store, "a", ROWS, created_s=1.0, key="id")
    scored_run(store, "b", ROWS[::-1], created_s=2.0, key="id")
    assert [row.key for row in compare_outputs(store, ["a", "b"]).rows().rows][:2] == ["k0", "k1"]


def test_different_keys_are_refused(store: RunStore) -> None:
    scored_run(store, "a", ROWS, created_s=1.0, key="id")
    scored_run(store, "b", ROWS, created_s=2.0)
    with pytest.raises(ComparisonError, match="by 'id', and b by the number of the row"):
        compare_outputs(store, ["a", "b"])


def test_runs_without_rows_are_refused(store: RunStore) -> None:
    make_run(store, "t-1", created_s=1.0)
    make_run(store, "t-2", created_s=2.0)
    scored_run(store, "s-1", ROWS)
    assert not has_rows(store, ["t-1", "t-2"])
    assert not has_rows(store, ["t-1", "s-1"])
    with pytest.raises(ComparisonError, match="2 runs of kind train cannot") as raised:
        compare_outputs(store, ["t-1", "t-2"])
    assert "scoring" in raised.value.remedy


def test_three_runs_have_no_row_by_row_comparison(store: RunStore) -> None:
    for number in range(3):
        scored_run(store, f"s-{number}", ROWS, created_s=float(number))
    assert not has_rows(store, ["s-0", "s-1", "s-2"])
    with pytest.raises(ComparisonError, match="3 runs"):
        compare_outputs(store, ["s-0", "s-1", "s-2"])


def test_the_output_is_where_the_config_says(store: RunStore, tmp_path: Path) -> None:
    far = tmp_path / "far"
    write_output(far, ROWS)
    make_run(store, "s", ended=None, kind="score", config={"output": {"url": str(far)}})
    assert output_url(store, store.record("s")) == str(far)


def test_an_output_on_the_cluster_is_found_in_its_copy(store: RunStore) -> None:
    url = "/on/the/cluster/only"
    make_run(store, "s", ended=None, kind="score", config={"output": {"url": url}})
    assert output_url(store, store.record("s")) == url
    folder = store.folder("s").output
    folder.mkdir()
    assert output_url(store, store.record("s")) == str(folder)


def test_a_key_with_the_name_of_an_own_column_was_renamed(store: RunStore) -> None:
    rows = [scored(i, "a", label="same", input_label=f"k{i}") for i in range(2)]
    scored_run(store, "a", rows, created_s=1.0, key="label")
    scored_run(store, "b", rows, created_s=2.0, key="label")
    assert [row.key for row in compare_outputs(store, ["a", "b"]).rows().rows] == ["k0", "k1"]


def test_a_relative_folder_is_below_the_workspace(store: RunStore, tmp_path: Path) -> None:
    write_output(tmp_path / "work" / "scores", ROWS)
    more = {"config": {"output": {"url": "scores"}}, "workspace_root": str(tmp_path / "work")}
    make_run(store, "s", ended=None, kind="score", **more)
    assert output_url(store, store.record("s")) == str(tmp_path / "work" / "scores")
