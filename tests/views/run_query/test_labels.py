"""Names that no two runs share."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmops_kernel.views.run_query.differences import Labels
from tests.views.run_query.rows import run

DAY_S = 86_400.0


def test_a_time_is_added_to_equal_texts_only() -> None:
    rows = [run("m-1", created_s=0), run("m-2", created_s=61), run("m-3", created_s=0)]
    names = Labels({"m-1": "a", "m-2": "a", "m-3": "b"}, rows)
    times = [time.strftime("%H:%M:%S", time.localtime(moment)) for moment in (0, 61)]
    assert dict(names) == {"m-1": f"a · {times[0]}", "m-2": f"a · {times[1]}", "m-3": "b"}
    assert len(names) == 3


def test_the_date_is_there_if_runs_that_need_it_are_of_several_days() -> None:
    rows = [run("m-1", created_s=0), run("m-2", created_s=5 * DAY_S), run("m-3", created_s=DAY_S)]
    names = Labels({"m-1": "a", "m-2": "b", "m-3": "a"}, rows)
    assert names["m-2"] == "b"
    assert names["m-3"] == f"a · {time.strftime('%d %b %H:%M:%S', time.localtime(DAY_S))}"
    same_day = Labels({"m-1": "a", "m-2": "a"}, [run("m-1", created_s=9), run("m-2", created_s=10)])
    assert same_day["m-1"] == f"a · {time.strftime('%H:%M:%S', time.localtime(9))}"


def test_a_title_that_looks_like_the_name_of_another_run() -> None:
    moment = time.strftime("%H:%M:%S", time.localtime(0))
    texts = {"m-1": "a", "m-2": "a", "m-3": f"a · {moment}"}
    rows = [run("m-1", created_s=0), run("m-2", created_s=5), run("m-3", created_s=0)]
    names = Labels(texts, rows)
    assert len(set(names.values())) == 3
    assert names["m-1"] == f"a · {moment} #1"


def test_an_unknown_run_has_no_name() -> None:
    with pytest.raises(KeyError):
        Labels({}, [])["m-1"]


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 3)), max_size=12))
def test_no_two_have_one_name(runs: list[tuple[str, int]]) -> None:
    rows = [run(f"m-{n}", created_s=created) for n, (_, created) in enumerate(runs)]
    names = Labels({f"m-{n}": text for n, (text, _) in enumerate(runs)}, rows)
    assert len(set(names.values())) == len(rows)
