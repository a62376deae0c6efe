"""Support by the context, refusals and what becomes of both."""

from __future__ import annotations

from typing import Any

import pytest

from llmops_kernel.config.models.score import Grounded
from llmops_kernel.score.evaluate.grounded import (
    Refusals,
    as_answerable,
    is_good,
    k_precision,
    outcome,
)

CONTEXT = "The soup contains lentils, carrots and cumin. It is vegan."


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("Lentils and carrots.", 1.0),
        ("The lentils", 1.0),  # an article is no word of the answer
        ("lentils, beef", 0.5),
        ("lentils lentils", 0.5),  # as often as the context has it
        ("beef", 0.0),
        ("", 0.0),
    ],
)
def test_support_is_the_share_of_words_that_the_context_has(answer: str, expected: float) -> None:
    assert k_precision(answer, CONTEXT) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("I don't know.", True),
        ("I DON’T  KNOW", True),
        ("That is not in the context, sorry", True),
        ("I don't knowingly add beef", False),
        ("lentils", False),
    ],
)
def test_refusals_are_found_as_whole_words(answer: str, expected: bool) -> None:
    assert Refusals(Grounded().refusals).found_in(answer) is expected


def test_no_phrases_no_refusals() -> None:
    assert not Refusals(("", " ")).found_in("I don't know")


@pytest.mark.parametrize(
    ("is_refusal", "support", "answerable", "expected", "good"),
    [
        (False, 0.8, None, "supported", 1.0),
        (False, 0.8, True, "supported", 1.0),
        (False, 0.79, None, "unsupported", 0.0),
        (False, 1.0, False, "unsupported", 0.0),
        (True, 0.0, False, "refused_rightly", 1.0),
        (True, 1.0, True, "refused_wrongly", 0.0),
        (True, 1.0, None, "refused_unknown", None),
    ],
)
def test_outcomes(
    is_refusal: bool, support: float, answerable: bool | None, expected: str, good: float | None
) -> None:
    judged = outcome(is_refusal=is_refusal, support=support, threshold=0.8, answerable=answerable)
    assert (judged, is_good(judged)) == (expected, good)


@pytest.mark.parametrize(
    ("value", "expected"),
    [(True, True), (0, False), ("Yes", True), ("false", False), (1.0, True), (None, None),
     ("maybe", None)],
)  # fmt: skip
def test_a_columns_value_as_yes_or_no(value: Any, expected: bool | None) -> None:
    assert as_answerable(value) is expected
