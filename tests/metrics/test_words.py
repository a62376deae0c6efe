"""The longest common subsequence against the textbook's table."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmops_kernel.metrics.scores import lcs_length, similarity, words

WORDS = st.lists(st.sampled_from("abcd"), max_size=80)


@settings(deadline=None)
@given(WORDS, WORDS)
def test_the_longest_common_subsequence_is_the_tables(a: list[str], b: list[str]) -> None:
    row = [0] * (len(b) + 1)
    for word in a:
        previous = row
        row = [0]
        for column, other in enumerate(b):
            same = previous[column] + 1 if word == other else 0
            row.append(max(same, previous[column + 1], row[column]))
    assert lcs_length(a, b) == row[-1]


def test_words_are_letters_and_digits_of_any_script() -> None:
    assert words("Crème-brûlée, 2x snake_case") == ["crème", "brûlée", "2x", "snake", "case"]


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ("", "", 1.0),
        ("!", "?", 0.0),
        ("a b", "a b", 1.0),
        ("A b.", "a, b", 1.0),
        ("a b c d", "a c", 2 * 2 / 6),
        ("a", "b", 0.0),
    ],
)
def test_similarity(a: str, b: str, expected: float) -> None:
    assert similarity(a, b) == pytest.approx(expected)
