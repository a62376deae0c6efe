"""Chooses hard negatives: for each query the nearest texts that do not answer it. Pure.

The rule is that of `mine_hard_negatives` of sentence-transformers: nearest first, no known
positive, and none that is nearer than the query's positive less a margin, as it may be a positive
that nobody has marked (NV-Retriever, arxiv.org/abs/2407.15831: TopK-MarginPos, and TopK-PercPos
where the margin is relative).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from llmops_kernel.errors import ConfigError

Vectors = NDArray[np.float32]
_BLOCK: Final = 1 << 24
"""Similarities that are in memory at once: 64 MB."""
_ROUNDING: Final = 1e-4
"""More than what products of float32 differ from exact ones: so near ones are computed exactly."""


@dataclass(frozen=True, kw_only=True)
class Rule:
    """Which texts are negatives of a query. Raises ConfigError."""

    negatives: int = 4
    """How many for each row, at most."""
    margin: float = 0.05
    """How much less similar than the query's least similar positive they are, as a cosine."""
    relative: bool = False
    """`margin` is a share of the positive's similarity."""
    skip: int = 0
    """The nearest ones that are left out: the most likely positives that nobody has marked."""
    replace: bool = False
    """Negatives that a row has already are left out of it, and may be found again."""

    def __post_init__(self) -> None:
        for name, least in (("negatives", 1), ("skip", 0), ("margin", 0)):
            if not getattr(self, name) >= least:
                raise ConfigError(
                    f"{name} is {getattr(self, name)}.", remedy=f"give {least} or more"
                )

    def limit(self, positive: float) -> float:
        """Return how similar a negative may be, where the positive's similarity is this."""
        return positive - self.margin * (abs(positive) if self.relative else 1)


@dataclass(frozen=True, kw_only=True)
class Choice:
    """The negatives of a query."""

    places: tuple[int, ...]
    """Documents, nearest first; of equal similarity by their place."""
    similarities: tuple[float, ...]
    positives: tuple[float, ...]
    """Similarities of its positives."""
    above: int
    """Documents that the margin left out."""
    why: Literal["", "margin", "texts"] = ""
    """What left fewer than asked for: the margin, or that there are no more texts."""


def choose(
    queries: Vectors,
    documents: Vectors,
    *,
    candidates: int,
    positives: Sequence[Sequence[int]],
    excluded: Sequence[Sequence[int]],
    rule: Rule,
    block: int = _BLOCK,
) -> Iterator[Choice]:
    """Yield the choice for each query.

    `queries`: (queries, width), `documents`: (documents, width), of length 1. The first
    `candidates` documents may be chosen; of each query `positives` say what the margin is measured
    from, and `excluded` which candidates are never chosen. Memory: `block` similarities.
    """
    rows = max(1, block // max(1, candidates))
    for start in range(0, len(queries), rows):
        scores = queries[start : start + rows] @ documents[:candidates].T
        for query, near in enumerate(scores, start=start):
            near[list(excluded[query])] = -np.inf
            yield _choice(queries[query], documents, near, positives[query], rule)


def _choice(
    query: Vectors, documents: Vectors, near: Vectors, own: Sequence[int], rule: Rule
) -> Choice:
    similar = _exact(query, documents, own)
    limit, most = rule.limit(float(similar.min())), rule.skip + rule.negatives
    available = int(np.isfinite(near).sum())
    unsure = np.flatnonzero(np.abs(near - limit) <= _ROUNDING)
    near[near > limit + _ROUNDING] = -np.inf
    near[unsure[_exact(query, documents, unsure) > limit]] = -np.inf
    below = int(np.isfinite(near).sum())
    least = np.partition(near, -most)[-most] if below > most else -np.inf
    places = np.flatnonzero(np.isfinite(near) & (near >= least - 2 * _ROUNDING))
    exact = _exact(query, documents, places)
    ranked = np.argsort(-exact, kind="stable")[rule.skip : most]
    return Choice(
        places=tuple(map(int, places[ranked])),
        similarities=tuple(map(float, exact[ranked])),
        positives=tuple(map(float, similar)),
        above=available - below,
        why="" if below >= most else "margin" if available >= most else "texts",
    )


def _exact(query: Vectors, documents: Vectors, places: Any) -> NDArray[np.float64]:
    """Return similarities that do not depend on which ones are computed together."""
    selected = documents[np.asarray(places, np.int64)].astype(np.float64)
    similarities: NDArray[np.float64] = np.einsum("ij,j->i", selected, query.astype(np.float64))
    return similarities


def same(text: str) -> str:
    """Return what is equal for texts that differ in case and spaces only."""
    return " ".join(text.split()).casefold()
