"""Which answers are kept: the same rows each time, in a bounded line of the journal."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmops_kernel.train.data.examples import Prompt
from llmops_kernel.train.evaluation import select_samples, shortened, spread
from llmops_kernel.train.hooks import Hooks


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
    assert select_samples(prompts(3), answers, {2: "3", 0: "prompt 1"}, Hooks()) == (
        {"row": "prompt 1", "prompt": "p0", "prediction": "a"},
        {"row": "3", "prompt": "p2", "prediction": "c", "reference": "r2", "exact_match": "0"},
    )
    assert select_samples(prompts(3), answers, {}, Hooks()) == ()


def test_an_answer_without_a_hook_is_compared_with_its_reference() -> None:
    [sample] = select_samples(prompts(2), [(1, " r1\n")], {1: "2"}, Hooks())
    assert sample["exact_match"] == "1"


def test_a_row_has_the_numbers_of_score_row() -> None:
    hooks = Hooks(
        score_row=lambda answer, reference, row: {"same": answer == reference, "f1": None}
    )
    [sample] = select_samples(prompts(2), [(1, "r1")], {1: "2"}, hooks)
    assert (sample["same"], sample["f1"], "exact_match" in sample) == ("1", "–", False)


@pytest.mark.parametrize(
    ("score_row", "said"),
    [
        (lambda *_: {"a": 1 / 0}, "The hook <lambda> raised ZeroDivisionError on row 2"),
        (lambda *_: 0.5, "The hook score_row returned a float, not a dict."),
        (lambda *_: {"prompt": 1.0}, "The hook score_row returned 'prompt'"),
    ],
)
def test_a_score_row_that_fails_is_reported_with_the_row(score_row: Any, said: str) -> None:
    [sample] = select_samples(prompts(2), [(1, "r1")], {1: "2"}, Hooks(score_row=score_row))
    assert said in sample["score_row"]
    assert sample["prompt"] == "p1"


@given(st.integers(1, 200), st.integers(0, 200_000))
def test_a_line_of_the_journal_stays_bounded(number: int, length: int) -> None:
    answers = [(index, "x" * length) for index in range(number)]
    asked, names = prompts(number, "y" * length), {i: f"{i}" for i in range(number)}
    kept = select_samples(asked, answers, names, Hooks())
    assert len(kept) == number
    assert len(json.dumps(kept)) < 140_000


def test_a_long_text_says_how_much_is_left_out() -> None:
    assert shortened("abcdef", 6) == "abcdef"
    assert shortened("abcdef" * 1000, 4) == "abcd… (5,996 more characters)"
