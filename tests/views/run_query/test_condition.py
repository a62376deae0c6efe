from __future__ import annotations

from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmops_kernel.errors import QueryError
from llmops_kernel.store.run_notes import RunNotes
from llmops_kernel.views.run_query.query import condition
from llmops_kernel.views.run_query.row import Catalogue
from tests.views.run_query.rows import run

NOON_S = datetime(2026, 11, 23, 12).timestamp()
ROWS = [
    run(
        "menu-a",
        config={
            "method": {"type": "lora", "r": 16, "use_dora": False},
            "data": {"train": "data/menu.jsonl", "max rows": 5, "mix": [{"x": 1}, {"x": 2}]},
            "name": "menu",
            "report_to": ["wandb"],
            "training": {"max_steps": None},
        },
        figures={"eval_loss": 0.3, "mfu": None, "loss": 0.5},
        notes=RunNotes(tags=("best", "Paper")),
        created_s=NOON_S,
    ),
    run(
        "tags-b",
        config={"method": {"type": "full"}, "training": {"max_steps": 100}},
        figures={"eval_loss": 0.9, "loss": None},
        state="FAILED",
        notes=RunNotes(starred=True),
        created_s=NOON_S - 86_400,
    ),
]
CATALOGUE = Catalogue(ROWS)


def matching(text: str) -> str:
    matches = condition(text, CATALOGUE)
    return "".join(row.run_id[-1] for row in ROWS if matches(row))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "ab"),
        ("  ", "ab"),
        ("method.r > 8 and eval_loss < 0.4", "a"),
        ("method.r > 8 or eval_loss > 0.4", "ab"),
        ("eval_loss < 0.4", "a"),
        ("eval_loss*2 >= 1.8", "b"),
        ("0.1 < eval_loss < 0.5", "a"),
        ("-eval_loss < -0.5", "b"),
        ("eval_loss - loss < 0", "a"),
        ("eval_loss / 0 > 1", ""),
        (" and ".join(["loss < 0.9"] * 100), "a"),
        # What is unknown never matches, nor does its opposite.
        ("mfu > 0", ""),
        ("not mfu > 0", ""),
        ("mfu != 0.5", ""),
        ("method.r > 0", "a"),
        ("not (method.r > 0)", ""),
        ("not (method.r > 0) or eval_loss > 0", "ab"),
        ("mfu == none", "ab"),
        ("training.max_steps is None", "a"),
        ("training.max_steps != null", "b"),
        # Texts: any case, parts, lists.
        ("state == 'failed'", "b"),
        ('state in ("failed", "stopped")', "b"),
        ("state not in ['failed']", "a"),
        ("'LoRA' in method.type", "a"),
        ("'best' in tags", "a"),
        ("'paper' in tags", "a"),
        ("'best' not in tags", "b"),
        ("'wandb' in report_to", "a"),
        ("starred", "b"),
        ("not starred", "a"),
        ("tags", "a"),
        ("method.use_dora == false", "a"),
        # Another type is neither less nor greater.
        ("method.type > 3", ""),
        ("not method.type > 3", ""),
        ("method.type == 3", ""),
        ("method.r == True", ""),
        # Ends of a path, its full name, names that are no words.
        ("r == 16", "a"),
        ("config.name == 'menu'", "a"),
        ("name == 'tags'", "b"),
        ("figure.eval_loss < 0.4", "a"),
        ("config['data']['max rows'] == 5", "a"),
        ("column['data.max rows'] == 5", "a"),
        ("data.mix[1].x == 2", "a"),
        ("created >= '2026-11-23'", "a"),
        ("created < '2026-11-23 00:00'", "b"),
        ("  method.r\n > 8", "a"),
        ("1e999 > eval_loss", "ab"),
    ],
)
def test_which_runs_match(text, expected):
    assert matching(text) == expected


@pytest.mark.parametrize(
    ("text", "position", "expected"),
    [
        ("evel_loss < 0.4", 0, ["'evel_loss'", "eval_loss"]),
        ("eval_loss < 0.4 and metod.r > 8", 20, ["'metod.r'", "method.r"]),
        ("'ä' in name and metod.r > 8", 16, ["method.r"]),
        ("  evel_loss < 0.4", 2, ["eval_loss"]),
        ("x == 2", 0, ["the end of 2 columns", "data.mix[0].x"]),
        ("state == failed", 9, ["'failed'", "quotes"]),
        ("state = 'failed'", 6, ["==", "character 7"]),
        ("starred && tags", 8, ["`and`"]),
        ("starred || tags", 8, ["`or`"]),
        ("!starred", 0, ["`not`"]),
        ("eval_loss <", None, ["cannot be read", "for example"]),
        ("(eval_loss < 1", None, ["cannot be read"]),
        ("__import__('os').system('x')", 0, ["cannot contain", "__import__"]),
        ("name.__class__ == 1", 0, ["'name.__class__'"]),
        ("eval_loss ** 9999 > 1", 0, ["cannot contain"]),
        ("[x for x in name]", 0, ["cannot contain"]),
        ("lambda: 1", 0, ["cannot contain"]),
        ("f'{name}'", 0, ["cannot contain"]),
        ("b'x' in name", 0, ["cannot contain"]),
        ("1j > 2", 0, ["cannot contain"]),
        ("(y := 3)", None, ["cannot contain"]),
        ("name[0:3] == 'abc'", 0, ["cannot contain"]),
        ("created > 'yesterday'", 10, ["'yesterday' is not a date", "2026-11-23"]),
        ("1 == 1 " * 400, None, ["at most 2,000"]),
        ("(" * 300 + "1" + ")" * 300, None, ["filter"]),
        ("not " * 200 + "starred", None, ["nested too deeply"]),
        ("\0", None, ["cannot be read"]),
    ],
)
def test_what_is_wrong_is_said_with_its_place(text, position, expected):
    with pytest.raises(QueryError) as caught:
        condition(text, CATALOGUE)
    assert [part for part in expected if part not in str(caught.value)] == []
    assert caught.value.remedy
    if position is not None:
        assert caught.value.position == position


@given(st.text(max_size=60))
def test_any_text_either_parses_or_says_what_is_wrong(text):
    try:
        matches = condition(text, CATALOGUE)
    except QueryError as error:
        said = error
    else:
        assert all(matches(row) in (True, False) for row in ROWS)
        return
    assert said.message
    assert said.remedy


_VALUE = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.floats(allow_nan=True),
    st.text(max_size=3),
    st.lists(st.text(max_size=2), max_size=2),
)
_TERM = st.sampled_from(["a", "b", "1", "'x'", "none", "true", "(1, 2)", "a + b", "-a", "a / b"])
_COMPARISON = st.builds(
    lambda left, op, right: f"({left} {op} {right})",
    _TERM,
    st.sampled_from(["==", "!=", "<", "<=", ">", ">=", "in", "not in", "is"]),
    _TERM,
)
_EXPRESSION = st.recursive(
    _COMPARISON,
    lambda inner: st.one_of(
        st.builds(lambda x: f"(not {x})", inner),
        st.builds(lambda x, op, y: f"({x} {op} {y})", inner, st.sampled_from(["and", "or"]), inner),
    ),
    max_leaves=6,
)


@given(_EXPRESSION, _VALUE, _VALUE)
def test_no_value_of_a_run_makes_a_filter_raise(text, a, b):
    row = run("r-1", config={"a": a, "b": b})
    assert condition(text, Catalogue([row]))(row) in (True, False)


@given(_EXPRESSION, _VALUE, _VALUE)
def test_a_run_never_matches_both_a_filter_and_its_opposite(text, a, b):
    row = run("r-1", config={"a": a, "b": b})
    catalogue = Catalogue([row])
    assert not (condition(text, catalogue)(row) and condition(f"not {text}", catalogue)(row))


@given(st.sampled_from(["<", "<=", ">", ">=", "==", "!=", "in"]), _VALUE)
def test_a_comparison_with_an_unknown_column_value_never_matches(op, other):
    row = run("r-1", config={"a": None, "b": other})
    catalogue = Catalogue([row])
    assert not condition(f"a {op} b", catalogue)(row)
    assert not condition(f"not (a {op} b)", catalogue)(row)


def test_a_filter_in_another_language_is_told_the_operators():
    rows = [run("m-1", config={"x": 1})]
    with pytest.raises(QueryError) as caught:
        condition("name contains 'menu'", Catalogue(rows))
    assert "'text' in column" in caught.value.remedy
    assert "== != < <= > >= in" in caught.value.remedy
    with pytest.raises(QueryError) as caught:
        condition("loss <", Catalogue(rows))
    assert "== != < <= > >= in" in caught.value.remedy
