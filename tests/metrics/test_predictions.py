"""Metrics of many rows against scikit-learn, SciPy and a plain ranking."""

from __future__ import annotations

import math

import numpy as np
import pytest

from llmops_kernel.metrics.predictions import means_of, pearson, retrieval, retrievals, spearman


def vectors(count: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(count, 12)).astype(np.float32)


def test_queries_find_what_a_plain_ranking_finds() -> None:
    """More pairs than are in memory at once."""
    queries, texts = vectors(2500, 1), vectors(2100, 2)
    generator = np.random.default_rng(3)
    relevant = {(n, int(generator.integers(2100))) for n in range(2500) for _ in range(1 + n % 3)}
    for query, text in relevant:
        if query % 2:
            queries[query] += texts[text]
    pairs = np.array(sorted(relevant))
    found = retrieval(queries, texts, pairs)
    unit = [rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (queries, texts)]
    for query in range(0, 2500, 50):
        order = np.argsort(-(unit[0][query] @ unit[1].T), kind="stable")
        answers = {text for other, text in relevant if other == query}
        hits = [int(text) in answers for text in order[:10]]
        gains = [1 / math.log2(rank + 2) for rank in range(10)]
        ideal = sum(gains[: len(answers)])
        expected = {
            "recall@1": hits[0] / len(answers),
            "recall@10": sum(hits) / len(answers),
            "ndcg@10": sum(gain for gain, hit in zip(gains, hits, strict=True) if hit) / ideal,
            "mrr@10": 1 / (hits.index(True) + 1) if any(hits) else 0.0,
        }
        assert {name: row[query] for name, row in found.figures.items()} == pytest.approx(expected)
        assert found.nearest[query] == order[0]
    means = means_of(retrievals(queries, texts, pairs, [4, 12, 99]))
    cut = retrieval(queries[:, :4], texts[:, :4], pairs).figures["ndcg@10"]
    assert means["ndcg@10_dim4"] == pytest.approx(cut.mean())
    assert means["recall@10"] == pytest.approx(found.figures["recall@10"].mean())
    assert len(means) == 8, "a length that the vectors do not have is left out"


def test_correlations_are_those_of_scipy() -> None:
    from scipy import stats

    generator = np.random.default_rng(5)
    a = generator.integers(0, 6, size=200).astype(float)
    b = a + generator.normal(size=200)
    assert pearson(a, b) == pytest.approx(stats.pearsonr(a, b).statistic)
    assert spearman(a, b) == pytest.approx(stats.spearmanr(a, b).statistic)
    assert pearson(a, np.ones(200)) is None
    assert spearman(a[:1], b[:1]) is None
