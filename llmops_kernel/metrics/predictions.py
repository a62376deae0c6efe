"""Metrics that only many rows have: F1 of labels, correlations, how well queries find texts.

Pure; of labels and arrays, whoever has computed them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Vectors = NDArray[np.float32]
Ints = NDArray[np.int64]
CUTOFFS = (1, 10)
"""How many of the first texts `recall` looks at."""
_CHUNK = 4_000_000
"""Similarities that are in memory at once."""


def f1_scores(
    answers: Iterable[tuple[Collection[Hashable], Collection[Hashable]]],
    labels: Iterable[Hashable],
) -> list[float]:
    """Return the F1 of each label; 0 for one that is neither answered nor there, as scikit-learn.

    `answers`: of each row the labels that were answered, and those that are right.
    """
    both: Counter[Hashable] = Counter()
    either: Counter[Hashable] = Counter()
    for answered, right in answers:
        either.update(answered)
        either.update(right)
        both.update(label for label in answered if label in right)
    return [2 * both[label] / either[label] if either[label] else 0.0 for label in labels]


def pearson(a: Floats, b: Floats) -> float | None:
    """Return the correlation of two columns; None where one has less than two different values."""
    if len(a) < 2 or np.ptp(a) == 0 or np.ptp(b) == 0:
        return None
    return float(np.corrcoef(a, b)[0, 1])


def spearman(a: Floats, b: Floats) -> float | None:
    """Return the correlation of the ranks of two columns; equal values have their mean rank."""
    return pearson(_ranks(a), _ranks(b))


def _ranks(values: Floats) -> Floats:
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    ranks: Floats = (ends - (counts - 1) / 2)[places]
    return ranks


# --- How well queries find their texts ---


@dataclass(frozen=True)
class Retrieval:
    """What queries find."""

    figures: dict[str, Floats]
    """Name -> a number for each query."""
    nearest: Ints
    """The row of the text that is nearest to each query."""


def retrieval(queries: Vectors, texts: Vectors, relevant: Ints) -> Retrieval:
    """Return recall, nDCG and MRR of each query among all texts, by cosine similarity.

    As InformationRetrievalEvaluator of sentence-transformers defines them. `queries`: (queries,
    width); `texts`: (texts, width); `relevant`: (pairs, 2), rows of a query and of a text that
    answers it, each pair once and each query in one at least. Exact; a share of the similarities
    is in memory at a time.
    """
    ranks, nearest = _ranks_of(_normalized(queries), _normalized(texts), relevant)
    count = len(queries)

    def summed(values: Floats) -> Floats:
        return np.bincount(relevant[:, 0], weights=values, minlength=count).astype(np.float64)

    num_relevant, most = summed(np.ones(len(relevant))), max(CUTOFFS)
    gains = 1 / np.log2(np.arange(most) + 2)
    ideal = np.cumsum(gains)[np.minimum(num_relevant, most).astype(int) - 1]
    first: Floats = np.full(count, np.inf)
    np.minimum.at(first, relevant[:, 0], ranks)
    is_near = ranks <= most
    figures: dict[str, Floats] = {
        **{f"recall@{k}": summed((ranks <= k).astype(np.float64)) / num_relevant for k in CUTOFFS},
        f"ndcg@{most}": summed(np.where(is_near, 1 / np.log2(ranks + 1), 0.0)) / ideal,
        f"mrr@{most}": np.where(first <= most, 1 / first, 0.0),
    }
    return Retrieval(figures, nearest)


def retrievals(
    queries: Vectors, texts: Vectors, relevant: Ints, dimensions: Sequence[int] = ()
) -> dict[str, Retrieval]:
    """Return `retrieval` of whole vectors, under "", and of vectors cut to n, under `_dim<n>`."""
    width = texts.shape[1]
    sizes = [size for size in sorted(set(dimensions)) if size < width]
    return {"": retrieval(queries, texts, relevant)} | {
        f"_dim{size}": retrieval(queries[:, :size], texts[:, :size], relevant) for size in sizes
    }


def means_of(retrieved: Mapping[str, Retrieval]) -> dict[str, float]:
    """Return the means over all queries of what `retrievals` returns, by name and ending."""
    return {
        f"{name}{end}": float(values.mean())
        for end, group in retrieved.items()
        for name, values in group.figures.items()
    }


def _ranks_of(queries: Vectors, texts: Vectors, relevant: Ints) -> tuple[Floats, Ints]:
    """Return the rank of each pair's text for its query, from 1, and each query's nearest text.

    Of equally near ones the first comes first.
    """
    ranks, nearest = np.empty(len(relevant)), np.empty(len(queries), dtype=np.int64)
    order = np.argsort(relevant[:, 0], kind="stable")
    owners = relevant[order, 0]
    step = max(1, _CHUNK // len(texts))
    for begin in range(0, len(queries), step):
        scores = queries[begin : begin + step] @ texts.T
        nearest[begin : begin + step] = scores.argmax(-1)
        low, high = np.searchsorted(owners, (begin, begin + step))
        for pair in order[low:high]:
            query, text = relevant[pair]
            row = scores[query - begin]
            is_nearer = row > row[text]
            ranks[pair] = 1 + is_nearer.sum() + (row[:text] == row[text]).sum()
    return ranks, nearest


def _normalized(rows: Vectors) -> Vectors:
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    vectors: Vectors = (rows / np.maximum(lengths, 1e-12)).astype(np.float32)
    return vectors
