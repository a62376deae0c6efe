"""What a model card says of several sources of training rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from llmops_kernel.services.export import card_facts
from llmops_kernel.store.journal.training_view import TrainingView
from llmops_kernel.store.record import RunRecord
from llmops_kernel.train.checkpoints.output import model_card

SOURCES = [{"path": "data/a.jsonl", "weight": 2}, {"path": "/mnt/team/b.jsonl", "weight": 0.5}]


def data_of(train: Any, make_config: Callable[..., Any]) -> Any:
    config = make_config(data={"train": train, "eval": "data/e.jsonl"})
    record = RunRecord(
        run_id="r",
        name="r",
        created_s=0,
        cluster="local",
        config=config.model_dump(mode="json"),
        files={"data/a.jsonl": "0123", "data/e.jsonl": "4567"},
    )
    return card_facts(record, TrainingView([]), base="tiny-llama").data


def test_a_card_lists_each_source_with_its_weight_and_hash(make_config: Any) -> None:
    first, second, held_out = (dict(one) for one in data_of(SOURCES, make_config))
    assert (first["role"], first["source"]) == ("training", "data/a.jsonl (weight 2)")
    assert (first["sha256_16"], first["rows"]) == ("0123", None)
    assert (second["source"], second["sha256_16"]) == ("b.jsonl (weight 0.5)", None)
    assert (held_out["role"], held_out["sha256_16"]) == ("evaluation", "4567")


@pytest.mark.parametrize("train", ["data/a.jsonl", [{"path": "data/a.jsonl"}]])
def test_a_single_source_has_no_weight(make_config: Any, train: Any) -> None:
    first, _ = (dict(one) for one in data_of(train, make_config))
    assert (first["source"], first["sha256_16"]) == ("data/a.jsonl", "0123")


def test_the_card_beside_the_weights_names_them_as_well(make_config: Any) -> None:
    card = model_card(make_config(data={"train": SOURCES}), {"steps": 3}, run_id="r", base="m")
    assert "m, trained with" in card
    assert "on `data/a.jsonl` (weight 2), `b.jsonl` (weight 0.5) (run `r`)" in card
