"""Exact match and F1 of fields, against tables worked out by hand."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmops_kernel.score.evaluate.text_metrics import exact_match, field_f1, set_f1

TEXTS = st.sets(st.sampled_from("abcdef"))


@pytest.mark.parametrize(
    ("answer", "reference", "expected"),
    [
        ("vegan", "vegan", 1.0),
        (" vegan \n", "vegan", 1.0),
        ("spicy  soup", "spicy soup", 1.0),
        ("cafe\u0301", "caf\u00e9", 1.0),
        ("Vegan", "vegan", 0.0),
        ("", "", 1.0),
        ("", "vegan", 0.0),
    ],
)
def test_only_white_space_and_forms_of_characters_do_not_matter(
    answer: str, reference: str, expected: float
) -> None:
    assert exact_match(answer, reference) == expected


@pytest.mark.parametrize(
    ("answer", "reference", "expected"),
    [
        ('{"b": 1, "a": [1.0, "x"]}', '{"a": [1, "x"], "b": 1}', 1.0),
        ('{"a": ["y", "x"]}', '{"a": ["x", "y"]}', 0.0),
        ('{"a": true}', '{"a": 1}', 0.0),
        ("not json", '{"a": 1}', 0.0),
        ("[" * 100_000, '{"a": 1}', 0.0),
    ],
)
def test_json_is_compared_by_value(answer: str, reference: str, expected: float) -> None:
    assert exact_match(answer, reference, is_json=True) == expected


def test_fields_are_compared_as_sets_and_averaged() -> None:
    reference = {"tags": ["vegan", "spicy"], "course": "main", "allergens": []}
    answer = {"tags": ["spicy", "hot", "vegan"], "course": "dessert", "allergens": None}
    scores = field_f1(json.dumps(answer), json.dumps(reference))
    # tags: 2 * 2 / (3 + 2); both have no allergen
    assert scores["field_f1_tags"] == pytest.approx(0.8)
    assert scores["field_f1_course"] == 0.0
    assert scores["field_f1_allergens"] == 1.0
    assert scores["field_f1"] == pytest.approx((0.8 + 0 + 1) / 3)


def test_an_invented_field_costs_but_gets_no_column() -> None:
    scores = field_f1('{"a": 1, "invented": 2}', '{"a": 1}')
    assert scores == {"field_f1": 0.5, "field_f1_a": 1.0}


def test_an_answer_that_is_no_object_gets_nothing() -> None:
    assert field_f1("Sure! Here it is", '{"a": 1, "b": []}') == {
        "field_f1": 0.0,
        "field_f1_a": 0.0,
        "field_f1_b": 0.0,
    }


def test_without_an_object_to_compare_with_f1_is_unknown() -> None:
    assert field_f1('{"a": 1}', "none", ["a"]) == {"field_f1": None, "field_f1_a": None}


def test_the_schemas_fields_have_columns_in_every_row() -> None:
    assert set(field_f1('{"a": 1}', "{}", ["a", "b"])) == {
        "field_f1",
        "field_f1_a",
        "field_f1_b",
    }


@settings(deadline=None)
@given(TEXTS, TEXTS)
def test_f1_is_the_harmonic_mean_of_precision_and_recall(
    found: set[str], expected: set[str]
) -> None:
    common = len(found & expected)
    if not common:
        assert set_f1(found, expected) == (0.0 if found or expected else 1.0)
        return
    precision, recall = common / len(found), common / len(expected)
    assert set_f1(found, expected) == pytest.approx(2 / (1 / precision + 1 / recall))
