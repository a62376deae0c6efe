"""BLEU of summed rows is the BLEU that sacrebleu gives for the whole corpus."""

from __future__ import annotations

import math

import pytest
import sacrebleu
from hypothesis import given, settings
from hypothesis import strategies as st

from llmops_kernel.score.evaluate.text_metrics import STATS, Bleu, corpus_bleu

WORDS = ["the", "cat", "sat", "on", "a", "mat", ".", "and", "dogs"]
SENTENCES = st.lists(st.sampled_from(WORDS), max_size=12).map(" ".join)
BLEU = Bleu()


@given(st.lists(st.tuples(SENTENCES, SENTENCES), min_size=1, max_size=8))
@settings(max_examples=50, deadline=None)
def test_rows_add_up_to_the_corpus(pairs: list[tuple[str, str]]) -> None:
    stats = [0] * STATS
    for answer, reference in pairs:
        stats = [a + b for a, b in zip(stats, BLEU.row(answer, reference)[1], strict=True)]
    answers, references = zip(*pairs, strict=True)
    expected = sacrebleu.corpus_bleu(list(answers), [list(references)]).score / 100
    ours = corpus_bleu(stats)
    assert ours == (pytest.approx(expected) if any(references) else None)


def test_a_rows_score_is_the_formulas() -> None:
    score, stats = BLEU.row("the cat sat on mat", "the cat sat on the mat")
    # 5 words of 6; n-grams 5/5, 3/4, 2/3, 1/2
    expected = math.exp(1 - 6 / 5) * (5 / 5 * 3 / 4 * 2 / 3 * 1 / 2) ** 0.25
    assert score == pytest.approx(expected)
    assert stats == [5, 6, 5, 3, 2, 1, 5, 4, 3, 2]


def test_an_equal_answer_of_two_words_is_perfect() -> None:
    assert BLEU.row("vegan soup", "vegan soup")[0] == pytest.approx(1.0)


def test_no_row_has_no_score() -> None:
    assert corpus_bleu([0] * STATS) is None
