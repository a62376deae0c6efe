"""Which answers are kept: the same rows each time, in a bounded line of the journal."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from llmops_kernel.train.data.examples import Prompt
from llmops_kernel.train.evaluation.samples import kept_samples, shortened, spread


@given(st.integers(0, 3000), st.integers(0, 100))
def test_rows_are_spread_over_all(number: int, wanted: int) -> None:
    found = spread(number, wanted)
    assert len(found) == min(number, wanted)
    assert found == sorted(set(found))
    assert all(0 <= index < number for index in found)
    if found:
        gaps = [b - a for a, b in zip(found, [*found[1:], number], strict=True)]
        assert max(gaps) - min(gaps) <= 1


def prompts(number: int, text: str = "p") -> list[Prompt]:
    return [
        Prompt([1], f"{text}{index}", f"r{index}" if index else "", {}) for index in range(number)
    ]


def test_what_is_kept_is_named() -> None:
    answers = [(0, "a"), (1, "b"), (2, "c")]
    assert kept_samples(prompts(3), answers, {2: "3", 0: "prompt 1"}) == (
        {"row": "prompt 1", "prompt": "p0", "prediction": "a"},
        {"row": "3", "prompt": "p2", "prediction": "c", "reference": "r2"},
    )
    assert kept_samples(prompts(3), answers, {}) == ()


@given(st.integers(1, 200), st.integers(0, 200_000))
def test_a_line_of_the_journal_stays_bounded(number: int, length: int) -> None:
    answers = [(index, "x" * length) for index in range(number)]
    kept = kept_samples(prompts(number, "y" * length), answers, {i: f"{i}" for i in range(number)})
    assert len(kept) == number
    assert len(json.dumps(kept)) < 140_000


def test_a_long_text_says_how_much_is_left_out() -> None:
    assert shortened("abcdef", 6) == "abcdef"
    assert shortened("abcdef" * 1000, 4) == "abcd… (5,996 more characters)"
