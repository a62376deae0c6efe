"""The random examples themselves: the same for a seed, and no longer than their limit."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest
from hypothesis import strategies as st

from tests.fuzz.examples import LIMIT_S, TIMES_ENV_VAR, examples, taken, words
from tests.fuzz.report import lines_of

CI_S = 180.0


@pytest.fixture(autouse=True)
def once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also in a longer round."""
    monkeypatch.delenv(TIMES_ENV_VAR, raising=False)
    taken()


def test_they_are_the_same_each_time_and_as_many_as_asked_for() -> None:
    assert [*examples(words(), 50)] == [*examples(words(), 50)]
    assert [one["ran"] for one in taken()] == [50, 50]


def test_tests_that_take_long_end_early_and_say_so() -> None:
    for _ in examples(st.integers(), 100, limit_s=1.0):
        time.sleep(0.2)
    (ran,) = taken()
    assert 0 < ran["ran"] < 10
    lines = lines_of([("test_it", ran), ("test_other", {"ran": 1000, "wanted": 1000, "took_s": 9})])
    assert len(lines) == 2
    assert "of 2 tests" in lines[0]
    assert f"s with {ran['ran']} of 100 examples" in lines[1]
    assert "test_it ended after" in lines[1]


def test_values_that_take_long_to_draw_end_early_too() -> None:
    slow = st.integers().map(lambda value: time.sleep(0.05) or value)
    began_s = time.monotonic()
    assert 0 < len([*examples(slow, 500, limit_s=1.0)]) < 20
    assert time.monotonic() - began_s < 10
    assert taken()[0]["ran"] < 20


def test_a_round_of_all_tests_ends_within_three_minutes() -> None:
    this = Path(__file__)
    texts = [file.read_text() for file in this.parent.glob("test_*.py") if file != this]
    calls = sum(len(re.findall(r"\bexamples\(", text)) for text in texts)
    assert 7 <= calls <= CI_S / LIMIT_S


def test_nothing_is_said_where_none_ran() -> None:
    assert lines_of([]) == []
