"""One row with every metric, and rows that cannot have some."""

from __future__ import annotations

import json
import math
import time
from typing import Any

import pytest

from llmops_kernel.config.models.score import ScoreConfig
from llmops_kernel.errors import DataError, HookError
from llmops_kernel.score.evaluate.row_scorer import RowScorer, Totals, perplexity

SCHEMA = {"type": "object", "properties": {"tags": {}, "course": {}}}


def config(metrics: list[str], **task: Any) -> ScoreConfig:
    return ScoreConfig.model_validate(
        {
            "model": "m",
            "input": "rows.jsonl",
            "prompt": {"template": "{x}", "reference": "{y}"},
            "task": task or "generate",
            "evaluation": {"metrics": metrics},
        }
    )


def test_every_metric_of_a_text() -> None:
    scorer = RowScorer(config(["exact_match", "rouge", "bleu", "grounded"]))
    scores = scorer.row("lentil soup", "lentil soup", {"context": "A lentil soup."})
    assert scores.values == pytest.approx(
        {
            "exact_match": 1.0,
            "rouge1": 1.0,
            "rouge2": 1.0,
            "rougeL": 1.0,
            "sentence_bleu": 1.0,
            "grounded": 1.0,
            "grounded_refused": 0.0,
            "grounded_support": 1.0,
        }
    )
    assert scores.outcome == "supported"
    assert scores.bleu == [2, 2, 2, 1, 0, 0, 2, 1, 0, 0]


def test_the_bleu_of_rows_and_that_of_the_corpus_have_different_names() -> None:
    scorer, totals = RowScorer(config(["bleu"])), Totals()
    pairs = [("a b c d", "a b c d"), ("a x", "a b c d e f g h")]
    rows = [scorer.row(answer, reference, {}) for answer, reference in pairs]
    for row in rows:
        totals.add(row)
    found = totals.metrics()
    assert set(found) == {"bleu", "sentence_bleu"}
    assert found["sentence_bleu"] == pytest.approx(
        sum(row.values["sentence_bleu"] or 0.0 for row in rows) / 2
    )
    assert found["bleu"] != pytest.approx(found["sentence_bleu"], abs=0.05)


def test_json_is_compared_by_its_schemas_fields() -> None:
    scorer = RowScorer(config(["exact_match", "field_f1"], type="json", json_schema=SCHEMA))
    scores = scorer.row('{"tags": ["a"]}', '{"tags": ["a", "b"], "course": "x"}', {})
    assert scores.values == pytest.approx(
        {
            "exact_match": 0.0,
            "field_f1": (2 / 3 + 0) / 2,
            "field_f1_tags": 2 / 3,
            "field_f1_course": 0.0,
        }
    )


def test_a_choice_has_its_confidence() -> None:
    scorer = RowScorer(config(["calibration"], type="classify", choices=["a", "b"]))
    scores = scorer.row("a", "b", {}, label_scores={"a": 0.7, "b": 0.3})
    assert scores.values == {"confidence": 0.7}
    assert (scores.confidence, scores.is_correct) == (0.7, False)


def test_perplexity_of_the_reference() -> None:
    scorer = RowScorer(config(["perplexity"], type="logprob"))
    scores = scorer.row("", "x y", {}, logprob=4 * math.log(0.25), output_tokens=4)
    assert scores.values["perplexity"] == pytest.approx(4.0)


@pytest.mark.parametrize(
    ("logprob", "tokens"),
    [(None, 3), (-1.0, 0), (-math.inf, 3), (math.nan, 3), (-1e9, 1)],
)
def test_a_perplexity_without_a_number_is_unknown(logprob: float | None, tokens: int) -> None:
    assert perplexity(logprob, tokens) is None


def test_without_a_reference_all_that_needs_one_is_unknown() -> None:
    scorer = RowScorer(config(["exact_match", "field_f1", "rouge", "bleu"]))
    values = scorer.row("answer", None, {}).values
    assert set(values) == {"exact_match", "field_f1", "rouge1", "rouge2", "rougeL", "sentence_bleu"}
    assert set(values.values()) == {None}


@pytest.mark.parametrize("row", [{}, {"context": None}, {"context": 3}])
def test_a_row_without_context_is_an_error(row: dict[str, Any]) -> None:
    with pytest.raises(DataError, match="'context'"):
        RowScorer(config(["grounded"])).row("answer", None, row)


def test_the_hook_adds_its_own_and_its_error_is_the_rows() -> None:
    def score_row(prediction: str, reference: str | None, row: Any) -> dict[str, float]:
        return {"length": float(row["length"])}

    scorer = RowScorer(config(["exact_match"]), score_row)
    assert scorer.row("a", "a", {"length": 3}).values == {"exact_match": 1.0, "length": 3.0}
    with pytest.raises(HookError, match="KeyError"):
        scorer.row("a", "a", {})


def test_names_are_known_before_an_answer() -> None:
    """A hook that reads JSON raises on an empty answer, but not on the reference."""

    def score_row(prediction: str, reference: str | None, row: Any) -> dict[str, float]:
        return {"items": float(len(json.loads(prediction)))}

    scorer = RowScorer(config(["exact_match", "rouge"]), score_row)
    built_in = ("exact_match", "rouge1", "rouge2", "rougeL")
    assert scorer.names_of("[1, 2]", {}) == (*built_in, "items")
    assert scorer.names_of(None, {}) == built_in
    with pytest.raises(DataError, match="'context'"):
        RowScorer(config(["grounded"])).names_of("x", {})


def test_a_row_costs_less_than_a_millisecond() -> None:
    scorer = RowScorer(config(["exact_match", "rouge", "bleu", "grounded"]))
    text = "a bowl of lentil soup with carrots and cumin and some bread at the side"
    row = {"context": f"{text}. " * 5}
    began = time.process_time()
    for _ in range(200):
        scorer.row(text, text, row)
    # Measured 0.1 ms, half of it sacrebleu; the bound leaves a slow machine its time.
    assert (time.process_time() - began) / 200 < 0.002
