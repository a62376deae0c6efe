"""The choice of hard negatives against sentence-transformers, plain loops and worked examples."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmops_kernel.errors import ConfigError
from llmops_kernel.metrics.hard_negatives import Choice, Rule, Vectors, choose, same

ANGLES = (0.0, 0.2, 0.4, 0.6, 0.8)
"""Of five documents from the query, in radians: their similarities are 1, .98, .92, .83 and .70."""


def unit(rows: Any) -> Vectors:
    found = np.asarray(rows, np.float64)
    return (found / np.linalg.norm(found, axis=1, keepdims=True)).astype(np.float32)


def at(angles: Sequence[float]) -> Vectors:
    return unit([[math.cos(angle), math.sin(angle)] for angle in angles])


def chosen(positives: Sequence[int], excluded: Sequence[int] | None = None, **rule: Any) -> Choice:
    known = positives if excluded is None else excluded
    [found] = choose(
        at([0.0]),
        at(ANGLES),
        candidates=len(ANGLES),
        positives=[positives],
        excluded=[known],
        rule=Rule(**rule),
    )
    return found


@pytest.mark.parametrize(
    ("positives", "rule", "places", "why"),
    [
        ([0], {"negatives": 2, "margin": 0.0}, (1, 2), ""),
        ([0], {"negatives": 2, "margin": 0.05}, (2, 3), ""),
        ([0], {"negatives": 2, "margin": 0.0, "skip": 1}, (2, 3), ""),
        ([0], {"negatives": 2, "margin": 0.0, "skip": 3}, (4,), "texts"),
        ([2], {"negatives": 2, "margin": 0.0}, (3, 4), ""),
        ([0, 3], {"negatives": 2, "margin": 0.05}, (4,), "margin"),
        ([3], {"negatives": 1, "margin": 0.2}, (), "margin"),
        ([3], {"negatives": 1, "margin": 0.15, "relative": True}, (4,), ""),
        ([3], {"negatives": 1, "margin": 0.17, "relative": True}, (), "margin"),
        ([0], {"negatives": 9, "margin": 0.0}, (1, 2, 3, 4), "texts"),
    ],
)
def test_nearest_first_below_the_margin(
    positives: list[int], rule: dict[str, Any], places: tuple[int, ...], why: str
) -> None:
    found = chosen(positives, **rule)
    assert (found.places, found.why) == (places, why)
    assert found.similarities == pytest.approx([math.cos(ANGLES[n]) for n in places], abs=1e-6)
    assert found.positives == pytest.approx([math.cos(ANGLES[n]) for n in positives], abs=1e-6)


def test_excluded_texts_are_passed_over_and_not_counted_as_above_the_margin() -> None:
    found = chosen([1], [0, 1, 2], negatives=1, margin=0.0)
    assert (found.places, found.above) == ((3,), 0)
    assert chosen([1], negatives=1, margin=0.0).above == 1  # The first one.


def test_equal_similarities_are_in_the_order_of_the_documents() -> None:
    documents = at([0.1, 0.5, 0.3, 0.5, 0.3, 0.5])
    [found] = choose(
        at([0.0]),
        documents,
        candidates=6,
        positives=[[0]],
        excluded=[[0]],
        rule=Rule(negatives=3, margin=0.0),
    )
    assert found.places == (2, 4, 1)


def test_a_document_behind_the_candidates_measures_the_margin_and_is_not_chosen() -> None:
    [found] = choose(
        at([0.0]),
        at([0.2, 0.4, 0.3]),
        candidates=2,
        positives=[[2]],
        excluded=[[]],
        rule=Rule(negatives=2, margin=0.0),
    )
    assert found.places == (1,)
    assert found.positives == pytest.approx([math.cos(0.3)])


@pytest.mark.parametrize(
    "wrong", [{"negatives": 0}, {"skip": -1}, {"margin": -0.1}, {"margin": math.nan}]
)
def test_numbers_that_mean_nothing(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=f"{next(iter(wrong))} is"):
        Rule(**wrong)


def test_what_is_the_same_text() -> None:
    assert same(" Pad\u00a0 THAI\n") == same("pad thai")
    assert same("straße") == same("STRASSE")
    assert same("pad thai") != same("padthai")


# --- Any vectors: plain loops, and sentence-transformers ---


def drawn(seed: int) -> tuple[Vectors, Vectors, list[list[int]]]:
    """Up to 12 queries and 20 documents, some of them twice; positives of each query."""
    generator = np.random.default_rng(seed)
    num_queries, num_documents = generator.integers(1, 13), generator.integers(2, 21)
    documents = generator.normal(size=(num_documents, 5))
    documents[generator.integers(num_documents)] = documents[0]
    positives = [
        sorted({*generator.integers(num_documents, size=generator.integers(1, 4)).tolist()})
        for _ in range(num_queries)
    ]
    near = documents[[own[0] for own in positives]]
    return unit(near + generator.normal(size=near.shape)), unit(documents), positives


@given(
    seed=st.integers(0, 10_000),
    negatives=st.integers(1, 6),
    skip=st.integers(0, 3),
    margin=st.sampled_from([0.0, 0.05, 0.3]),
    relative=st.booleans(),
)
def test_as_plain_loops_choose_in_blocks_of_any_size(
    seed: int, negatives: int, skip: int, margin: float, relative: bool
) -> None:
    queries, documents, positives = drawn(seed)
    rule = Rule(negatives=negatives, skip=skip, margin=margin, relative=relative)
    given_ = {"candidates": len(documents), "positives": positives, "excluded": positives}
    found = list(choose(queries, documents, **given_, rule=rule))
    for query, own, choice in zip(queries, positives, found, strict=True):
        similar = [sum(map(float.__mul__, query.tolist(), d.tolist())) for d in documents]
        least = min(similar[n] for n in own)
        limit = least - margin * (abs(least) if relative else 1)
        others = [n for n in range(len(documents)) if n not in own]
        left = [n for n in others if similar[n] <= limit + 1e-12]
        ranked = sorted(left, key=lambda n: (-round(similar[n], 12), n))
        assert list(choice.places) == ranked[skip : skip + negatives]
        assert choice.above == len(others) - len(left)
    for block in (1, 2 * len(documents)):
        assert list(choose(queries, documents, **given_, rule=rule, block=block)) == found


class Fixed:
    """What `mine_hard_negatives` asks of a model, with given vectors."""

    device = "cpu"

    def __init__(self, vectors: dict[str, Any]) -> None:
        self.vectors = vectors

    def encode_query(self, texts: list[str], **_: Any) -> Any:
        return np.stack([self.vectors[text] for text in texts])

    encode_document = encode_query

    def similarity(self, left: Any, right: Any) -> Any:
        from sentence_transformers.util import cos_sim

        return cos_sim(left, right)

    def similarity_pairwise(self, left: Any, right: Any) -> Any:
        from sentence_transformers.util import pairwise_cos_sim

        return pairwise_cos_sim(left, right)


@pytest.mark.parametrize(
    "margin", [{"absolute_margin": 0.0}, {"absolute_margin": 0.6}, {"relative_margin": 0.3}]
)
@pytest.mark.parametrize("skip", [0, 2])
def test_as_sentence_transformers_mines(margin: dict[str, float], skip: int) -> None:
    from datasets import Dataset
    from sentence_transformers.util import mine_hard_negatives

    generator = np.random.default_rng(0)
    documents = generator.normal(size=(60, 8))
    positives = [[n, (7 * n) % 60] if n % 3 == 0 else [n] for n in range(40)]
    queries = unit(documents[:40] + 1.5 * generator.normal(size=(40, 8)))
    documents = unit(documents)
    names = {f"d{n:02d}": vector for n, vector in enumerate(documents)}
    pairs = [(f"q{n:02d}", f"d{own:02d}") for n, each in enumerate(positives) for own in {*each}]
    theirs = mine_hard_negatives(
        Dataset.from_dict({"query": [q for q, _ in pairs], "positive": [d for _, d in pairs]}),
        Fixed({**names, **{f"q{n:02d}": vector for n, vector in enumerate(queries)}}),
        corpus=[*names],
        range_min=skip,
        range_max=60,
        num_negatives=3,
        output_format="triplet",
        verbose=False,
        **margin,
    )
    expected: dict[tuple[str, str], list[str]] = {}
    for row in theirs:
        expected.setdefault((row["query"], row["positive"]), []).append(row["negative"])
    rule = Rule(
        negatives=3,
        skip=skip,
        margin=next(iter(margin.values())),
        relative="relative_margin" in margin,
    )
    found = choose(
        queries, documents, candidates=60, positives=positives, excluded=positives, rule=rule
    )
    mine = {
        (f"q{n:02d}", f"d{own:02d}"): [f"d{place:02d}" for place in choice.places]
        for n, choice in enumerate(found)
        for own in positives[n]
    }
    assert {pair: texts for pair, texts in mine.items() if texts} == expected
