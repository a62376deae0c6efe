"""Two curves number by number, and what explains the first difference."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmops_kernel.metrics.events import EvalEvent
from llmops_kernel.views.reproduction import (
    Compared,
    Difference,
    DifferentValue,
    Reproduction,
    changes,
    compare,
    curve_of,
    is_compared,
    is_same,
    reasons,
    unknown,
)
from tests.store.events import step

NAN = float("nan")
NUMBERS = st.none() | st.integers(-5, 5) | st.floats(allow_subnormal=True)
CURVES = st.dictionaries(
    st.tuples(st.integers(0, 9), st.integers(0, 1)),
    st.dictionaries(st.sampled_from(["loss", "grad_norm"]), NUMBERS, min_size=1),
)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (0.1 + 0.2, 0.3, False),
        (0.0, -0.0, False),
        (NAN, NAN, True),
        (NAN, 1.0, False),
        (math.inf, -math.inf, False),
        (3, 3.0, True),
        (None, None, True),
        (None, 0.0, False),
        ("a", "a", True),
        ("1", 1, False),
    ],
)
def test_equal_means_equal_bits(one, other, same):
    assert is_same(one, other) is same


@given(CURVES)
def test_a_curve_is_equal_to_itself(curve):
    compared = compare(curve, {place: dict(values) for place, values in curve.items()})
    assert compared.difference is None
    assert compared.num_rows + compared.num_evaluations == len(curve)


@given(CURVES, CURVES)
def test_the_first_difference_is_at_the_same_place_from_both_sides(one, other):
    first, second = compare(one, other), compare(other, one)
    assert first.num_rows == second.num_rows
    if first.difference is None:
        assert second.difference is None
        return
    place = first.difference.place
    assert second.difference.place == place
    earlier = [each for each in one.keys() | other.keys() if each < place]
    assert all(compare({p: one[p]}, {p: other[p]}).difference is None for p in earlier)
    if not first.difference.only_in:
        names = {value.name for value in first.difference.values}
        assert all(not is_same(one[place].get(n), other[place].get(n)) for n in names)


def curve(last: int, **changed: float):
    steps = [step(n, loss=changed.get(f"at_{n}", 1 / n)) for n in range(1, last + 1)]
    return curve_of(steps, [])


GAP: dict[tuple[int, int], dict[str, float]] = {(1, 0): {}, (3, 0): {}}


@pytest.mark.parametrize(
    ("before", "after", "ended", "num_rows", "place", "only_in"),
    [
        (curve(5), curve(5), (True, True), 5, None, ""),
        (curve(5), curve(5, at_3=0.25), (True, True), 2, (3, 0), ""),
        (curve(5, at_4=NAN), curve(5, at_4=NAN), (True, True), 5, None, ""),
        (curve(5), curve(5, at_4=NAN), (True, True), 3, (4, 0), ""),
        (curve(5), curve(4), (True, True), 4, (5, 0), "before"),
        (curve(4), curve(5), (True, True), 4, (5, 0), "after"),
        # One that was stopped: what it did not reach is no difference, a gap is one.
        (curve(4), curve(5), (False, True), 4, None, ""),
        (curve(5), curve(4), (True, False), 4, None, ""),
        (curve(4), curve(5), (True, False), 4, (5, 0), "after"),
        (GAP, {(n, 0): {} for n in (1, 2, 3)}, (False, True), 1, (2, 0), "after"),
        ({}, curve(2), (True, True), 0, (1, 0), "after"),
    ],
)  # fmt: skip
def test_missing_and_different_steps(before, after, ended, num_rows, place, only_in):
    compared = compare(before, after, ended=ended)
    assert compared.num_rows == num_rows
    difference = compared.difference
    assert (difference.place if difference else None) == place
    assert (difference.only_in if difference else "") == only_in


def test_times_take_no_part_and_answers_do():
    names = ("accuracy", "eval_runtime", "load_s", "rows_per_second", "step_time", "mfu", "bleu")
    assert [name for name in names if is_compared(name)] == ["accuracy", "bleu"]
    one = [step(1, step_time_s=0.1, mfu=0.5, values={"spread": 0.5, "load_s": 1.0})]
    other = [step(1, step_time_s=0.2, mfu=0.6, values={"spread": 0.5, "load_s": 2.0})]
    said = [
        EvalEvent(step=1, metrics={"eval_loss": 2.0}, samples=({"row": "3", "prediction": text},))
        for text in ("yes", "no")
    ]
    assert compare(curve_of(one, []), curve_of(other, [])).difference is None
    compared = compare(curve_of(one, said[:1]), curve_of(other, said[1:]))
    assert compared.difference == Difference(
        place=(1, 1),
        values=(DifferentValue(name="answer to row 3", before="yes", after="no"),),
    )


FACTS = {
    "code": {"train.py": "aaaa", "same.py": "cccc"},
    "data": {"rows.jsonl": "1111", "far.parquet": None},
    "versions": {"torch": "2.13.0"},
    "device": {"cpu": "EPYC"},
    "attempts": {"attempts": "none resumed"},
    "settings": {},
}
TWO = {"data": {"rows.jsonl": "2222"}, "versions": {"torch": "2.14.0"}}
LOSS = DifferentValue(name="loss", before=1.0, after=1.0 + 1e-7)
OTHER_LOSS = DifferentValue(name="loss", before=1.0, after=1.5)
TOKENS = DifferentValue(name="tokens", before=100, after=90)


@pytest.mark.parametrize(
    ("changed", "value", "groups"),
    [
        ({}, OTHER_LOSS, []),
        ({"code": {"train.py": "bbbb", "same.py": "cccc"}}, OTHER_LOSS, ["code"]),
        (TWO, OTHER_LOSS, ["data", "versions"]),
        # Rounding: versions and devices are named first.
        (TWO, LOSS, ["versions", "data"]),
        # No arithmetic makes other counts.
        ({"device": {"cpu": "Xeon"}, "data": {"rows.jsonl": "2222"}}, TOKENS, ["data"]),
        ({"device": {"cpu": "Xeon"}}, TOKENS, []),
        # What is not known of one of the two is no reason.
        ({"versions": {}, "data": {"rows.jsonl": None}}, LOSS, []),
        ({"settings": {"batches": "vary"}}, LOSS, ["settings"]),
        ({"code": {"train.py": "aaaa"}}, OTHER_LOSS, ["code"]),
    ],
)  # fmt: skip
def test_reasons_are_facts_that_differ(changed, value, groups):
    difference = Difference(place=(7, 0), values=(value,))
    assert [each.group for each in reasons(difference, FACTS, FACTS | changed)] == groups
    assert reasons(difference, FACTS, FACTS) == ()


def test_a_resume_explains_no_step_before_it():
    resumed = FACTS | {"attempts": {"attempts": "resumed after step 6"}}
    for place, count in ((6, 0), (7, 1)):
        difference = Difference(place=(place, 0), values=(OTHER_LOSS,))
        assert len(reasons(difference, FACTS, resumed, resumed_at=[6])) == count


def test_what_is_not_known_is_named():
    assert unknown(FACTS, FACTS | {"versions": {}}) == ("data far.parquet", "model", "versions")
    assert changes(FACTS, FACTS | {"versions": {}}) == ()


def test_the_answer_as_text_and_as_json():
    values = (DifferentValue(name="loss", before=0.5, after=NAN),)
    difference = Difference(place=(3, 0), values=values)
    compared = Compared(num_rows=2, num_evaluations=1, difference=difference)
    answer = Reproduction(run="a-1", by="a-2", compared=compared)
    assert answer.text.splitlines() == [
        "differs at step 3 (2 steps and 1 evaluation before it are equal)",
        "  loss 0.5 -> nan",
        "Reason: unknown. Nothing that was recorded of the two differs.",
    ]
    data = json.loads(json.dumps(answer.to_json(), allow_nan=False))
    assert (data["answer"], data["step"], data["reason"]) == ("differs", 3, "unknown")
    assert data["values"] == [{"name": "loss", "before": 0.5, "after": "nan", "relative": None}]
    equal = Reproduction(
        run="a", by="b", compared=Compared(num_rows=1, num_evaluations=0, difference=None)
    )
    assert equal.text == "equal: 1 step, bit for bit"
    assert equal.to_json()["reason"] is None
