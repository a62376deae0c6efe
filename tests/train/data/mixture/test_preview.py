"""What `llmops data` says of several sources, against what a run trains on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from llmops_kernel.errors import DataError
from llmops_kernel.train.context import WorkerContext
from llmops_kernel.train.data.dataset import load_dataset
from llmops_kernel.train.data.preview.work import Preview
from llmops_kernel.train.data.sources import DataSources
from llmops_kernel.train.hooks import Hooks
from llmops_kernel.views.preview_facts import facts
from llmops_kernel.views.preview_text import row_head
from tests.train.data.preview.test_work import job, looked_at
from tests.train.data.stream.files import rows, write_jsonl

Make = Callable[..., Any]
TRAIN = [
    {"path": "train.jsonl", "weight": 2},
    {"path": "texts.jsonl", "weight": 0.5, "format": "text"},
]


@pytest.fixture
def folder(workspace: Path) -> Path:
    write_jsonl(workspace / "texts.jsonl", rows(40))
    write_jsonl(workspace / "eval.jsonl", rows(5))
    return workspace


@pytest.mark.parametrize("packing", [False, True])
def test_an_epoch_is_that_of_the_run(
    folder: Path, tmp_path: Path, make_config: Make, tokenizer: Any, packing: bool
) -> None:
    config = make_config(data={"train": TRAIN, "packing": packing, "max_length": 256})
    context = WorkerContext(run_id="test", folder=tmp_path / "run", workspace=folder)
    run = load_dataset(
        config,
        DataSources(config.data, context.roots),
        tokenizer=tokenizer,
        hooks=Hooks(),
        context=context,
    )
    found = looked_at(config, folder)
    assert found.epoch.sequences == len(run.train)
    assert not found.epoch.is_estimate
    first, second = found.sources
    assert (first.weight, first.total_rows, first.rows) == (2, 64, 128)
    assert (second.weight, second.total_rows, second.rows) == (0.5, 40, 20)
    assert first.row_share == pytest.approx(128 / 148)
    assert (first.token_share or 0) + (second.token_share or 0) == pytest.approx(1)
    assert run.num_tokens == pytest.approx((first.tokens or 0) + (second.tokens or 0), abs=1)
    assert found.train.total_rows == 104
    assert found.train.formats == {"prompt_completion": 64, "text": 40}


def test_each_source_is_a_fact_with_its_shares(folder: Path, make_config: Make) -> None:
    found = looked_at(make_config(data={"train": TRAIN, "eval": "eval.jsonl"}), folder)
    shown = {one.label: one.text for one in facts(found)}
    assert shown["source 1"].startswith(
        "train.jsonl: 64 rows, weight 2, 128 in an epoch: 86.5 % of the rows and "
    )
    assert shown["source 2"].startswith("texts.jsonl: 40 rows, weight 0.5, 20 in an epoch: 13.5 %")
    assert shown["rows"] == "104 rows of train.jsonl (weight 2) and texts.jsonl (weight 0.5)"
    assert shown["leaks"].startswith("5 of ")
    assert "training row" not in shown["leaks"]  # Of which source would it be?
    assert len(shown) == len(facts(found))
    assert [one.level for one in facts(found) if one.label == "format"] == ["plain"]


def test_the_shown_rows_are_of_all_sources_and_named_by_them(
    folder: Path, make_config: Make
) -> None:
    found = looked_at(make_config(data={"train": TRAIN}), folder, num_shown=4)
    heads = [row_head(row) for row in found.rows]
    assert [head.partition(",")[0] for head in heads] == ["train.jsonl"] * 2 + ["texts.jsonl"] * 2
    assert heads[0].startswith("train.jsonl, row 1: prompt_completion, ")
    assert {row.number for row in found.rows} == {None}


def test_a_sample_says_so(folder: Path, make_config: Make) -> None:
    write_jsonl(folder / "texts.jsonl", rows(3000))
    found = looked_at(make_config(data={"train": TRAIN}), folder, max_rows=50)
    assert found.epoch.is_estimate
    assert found.epoch.sequences == pytest.approx(128 + 1500, abs=3)
    assert found.sources[1].rows == 1500
    tokens = sum(one.tokens or 0 for one in found.sources)
    assert found.epoch.tokens == pytest.approx(tokens, rel=0.02)
    assert "about" in {one.label: one.text for one in facts(found)}["source 2"]


def test_one_source_has_no_shares(folder: Path, make_config: Make) -> None:
    found = looked_at(make_config(), folder)
    assert found.sources == []
    assert not [one for one in facts(found) if one.label.startswith("source")]


def test_a_row_by_its_number_needs_one_source(folder: Path, make_config: Make) -> None:
    config = make_config(data={"train": TRAIN, "eval": "eval.jsonl", "format": "text"})
    with pytest.raises(DataError, match="does not say which row is meant"):
        Preview(job(config, folder)).row(3)
    assert Preview(job(config, folder, side="eval")).row(3).number == 3


def test_errors_name_the_source(folder: Path, make_config: Make) -> None:
    write_jsonl(folder / "texts.jsonl", [{"txt": "a"}])
    with pytest.raises(DataError, match=r"^texts\.jsonl: Row 1"):
        looked_at(make_config(data={"train": TRAIN}), folder)
