"""Which words of a text are new."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmops_kernel.views.samples import new_words, spread_steps

TEXTS = st.text(alphabet="ab \n", max_size=40)


@pytest.mark.parametrize(
    ("before", "text", "new"),
    [
        (None, "a b", []),
        ("a b", "a b", []),
        ("a red cat", "a blue cat", ["blue"]),
        ("", "a", ["a"]),
        ("a", "", []),
        ("the the cat", "the cat sat", [" sat"]),
    ],
)
def test_new_words(before: str | None, text: str, new: list[str]) -> None:
    assert [piece for piece, is_new in new_words(before, text) if is_new] == new


@given(st.none() | TEXTS, TEXTS)
def test_the_pieces_are_the_text(before: str | None, text: str) -> None:
    pieces = new_words(before, text)
    assert "".join(piece for piece, _ in pieces) == text
    assert all(piece for piece, _ in pieces)
    if before == text or before is None:
        assert not any(is_new for _, is_new in pieces)


def test_of_a_very_long_text_the_middle_is_new() -> None:
    words = [f"w{number}" for number in range(5_000)]
    changed = [*words[:100], "other", *words[101:]]
    pieces = new_words(" ".join(words), " ".join(changed))
    assert [piece for piece, is_new in pieces if is_new] == ["other"]


@given(st.integers(1, 400), st.integers(2, 30))
def test_steps_are_spread_with_the_first_and_the_last(number: int, most: int) -> None:
    steps = list(range(0, 10 * number, 10))
    shown = spread_steps(steps, most)
    assert len(shown) == min(number, most)
    assert shown == sorted(set(shown))
    assert (shown[0], shown[-1]) == (steps[0], steps[-1])
