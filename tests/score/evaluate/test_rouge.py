"""ROUGE against values of `rouge-score` 0.1.2."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from llmops_kernel.score.evaluate.text_metrics import rouge

# Each: answer, reference, and the F1 of rouge1, rouge2, rougeL that
# RougeScorer([...]).score(reference, answer) of rouge-score 0.1.2 returned. Random sentences.
RECORDED = json.loads((Path(__file__).parent / "rouge_score_0_1_2.json").read_text())


@pytest.mark.parametrize("case", RECORDED, ids=lambda case: case[0][:20] or "empty")
def test_it_agrees_with_the_reference_implementation(case: list[float | str]) -> None:
    answer, reference, *expected = case
    scores = rouge(str(answer), str(reference))
    assert list(scores) == ["rouge1", "rouge2", "rougeL"]
    assert list(scores.values()) == pytest.approx(expected, abs=1e-9)


def test_other_scripts_have_words() -> None:
    assert rouge("crème brûlée", "Crème brûlée!")["rougeL"] == 1.0
    assert rouge("острый суп", "суп")["rouge1"] == pytest.approx(2 / 3)


def test_a_long_answer_costs_no_table() -> None:
    text = " ".join(f"w{number % 97}" for number in range(5000))
    began = time.process_time()
    assert rouge(text, text)["rougeL"] == 1.0
    # 25 million cells of a table take Python more than a second.
    assert time.process_time() - began < 0.5
