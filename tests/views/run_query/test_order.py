from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmops_kernel.errors import QueryError
from llmops_kernel.views.run_query.order import grouped, ordered, orders
from llmops_kernel.views.run_query.row import Catalogue
from tests.views.run_query.rows import run

ROWS = [
    run("a-1", figures={"loss": 0.5}, created_s=1, config={"r": 8}),
    run("a-2", figures={"loss": None}, created_s=2, config={"r": 16}),
    run("a-10", figures={"loss": 0.1}, created_s=3, config={"r": "auto"}),
    run("b-3", figures={"loss": 0.5}, created_s=4, state="FAILED"),
]
CATALOGUE = Catalogue(ROWS)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ["b-3", "a-10", "a-2", "a-1"]),
        ("loss", ["a-10", "b-3", "a-1", "a-2"]),
        ("-loss", ["b-3", "a-1", "a-10", "a-2"]),
        ("-loss,created", ["a-1", "b-3", "a-10", "a-2"]),
        ("run", ["a-1", "a-2", "a-10", "b-3"]),
        ("-run", ["b-3", "a-10", "a-2", "a-1"]),
        ("state, -created", ["b-3", "a-10", "a-2", "a-1"]),
        ("r", ["a-1", "a-2", "a-10", "b-3"]),
        ("-r", ["a-10", "a-2", "a-1", "b-3"]),
        ("+created", ["a-1", "a-2", "a-10", "b-3"]),
    ],
)
def test_order(text, expected):
    assert [row.run_id for row in ordered(ROWS, orders(text, CATALOGUE))] == expected


def test_an_unknown_column_of_an_order_is_an_error_with_near_matches():
    with pytest.raises(QueryError, match=r"'los'.*\n.*loss"):
        orders("-los", CATALOGUE)


def test_groups_come_in_order_of_their_values_and_unknown_ones_last():
    groups = grouped(ordered(ROWS, ()), [CATALOGUE.resolve("r")])
    assert [(group.values, len(group.rows)) for group in groups] == [
        ((8,), 1),
        ((16,), 1),
        (("auto",), 1),
        ((None,), 1),
    ]
    by_name = grouped(ordered(ROWS, orders("loss", CATALOGUE)), [CATALOGUE.resolve("name")])
    assert [row.run_id for row in by_name[0].rows] == ["a-10", "a-1", "a-2"]


_VALUES = st.lists(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.lists(st.text())),
    max_size=8,
)


@given(_VALUES, st.booleans())
def test_any_values_can_be_sorted_and_no_run_is_lost(values, descending):
    rows = [run(f"r-{n}", config={"x": value}) for n, value in enumerate(values)]
    catalogue = Catalogue([*rows, run("r-z", config={"x": 1})])
    found = ordered(rows, orders("-x" if descending else "x", catalogue))
    assert sorted(row.run_id for row in found) == sorted(row.run_id for row in rows)
    unknown = [row.get("config.x") is None for row in found]
    assert unknown == sorted(unknown)
    assert sum(len(g.rows) for g in grouped(rows, [catalogue.resolve("x")])) == len(rows)
