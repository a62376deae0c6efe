"""ROUGE: n-grams and the longest common subsequence of answer and reference.

Lin, "ROUGE: A Package for Automatic Evaluation of Summaries", ACL 2004 workshop; F1 with one
reference and without stemming, as `rouge-score` 0.1.2 computes it (tests compare with values of
it). Not through that library: its last release is of 2022, it drops every letter outside a-z, and
its table for rougeL needs milliseconds for answers of some hundred words.
"""

from __future__ import annotations

from collections import Counter

from llmops_kernel.metrics.words import lcs_length, words


def rouge(answer: str, reference: str) -> dict[str, float]:
    """Return the F1 of `rouge1`, `rouge2` and `rougeL`, each 0..1."""
    ours, expected = words(answer), words(reference)
    return {
        "rouge1": _ngram_f1(ours, expected, 1),
        "rouge2": _ngram_f1(ours, expected, 2),
        "rougeL": _f1(lcs_length(ours, expected), len(ours), len(expected)),
    }


def _ngram_f1(ours: list[str], expected: list[str], n: int) -> float:
    a, b = _ngrams(ours, n), _ngrams(expected, n)
    return _f1((a & b).total(), a.total(), b.total())


def _ngrams(tokens: list[str], n: int) -> Counter[tuple[str, ...]]:
    return Counter(zip(*(tokens[i:] for i in range(n)), strict=False))


def _f1(common: int, ours: int, expected: int) -> float:
    return 2 * common / (ours + expected) if common else 0.0
