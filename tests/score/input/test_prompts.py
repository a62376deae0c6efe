"""How a row becomes a prompt and an expected answer."""

from __future__ import annotations

import math
from typing import Any

import pytest

from llmops_kernel.config.models.score import ScoreConfig
from llmops_kernel.errors import LLMOpsError
from llmops_kernel.score.prompts import PromptMaker

ROW = {
    "name": "Ratatouille",
    "price": 9.5,
    "tags": {"diet": ["vegan", "cheap"], "cuisine": "french"},
    "empty": None,
    "nan": math.nan,
    "several": [1, math.nan],
    "text": "Smørbrød".encode(),
    "binary": b"\xff\xfe",
    "half": "cut \ud83d",
    "calls": [{"role": "assistant", "content": "", "tool_calls": [{"function": {}}]}],
    "chat": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}],
}

SYSTEM = {"role": "system", "content": "Tag"}


def _maker(prompt: Any, hook: Any = None) -> PromptMaker:
    values = {"model": "m", "input": "x.jsonl", "hooks": "h.py", "prompt": prompt}
    return PromptMaker(ScoreConfig.model_validate(values), {"format_prompt": hook})


def _user(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        ("{name}: {price}", _user("Ratatouille: 9.5")),
        ("{price:.2f} {{x}}", _user("9.50 {x}")),
        ("{tags.cuisine}: {tags.diet}", _user("french: vegan, cheap")),
        ({"template": "{name}", "chat": False}, "Ratatouille"),
        ({"column": "name"}, _user("Ratatouille")),
        ("{text}!", _user("Smørbrød!")),
        ({"column": "text"}, _user("Smørbrød")),
        ({"column": "chat"}, ROW["chat"]),
        (
            {"messages": [SYSTEM, {"role": "user", "content": "{name}"}]},
            [SYSTEM, *_user("Ratatouille")],
        ),
    ],
)  # fmt: skip
def test_template_chat_and_column(prompt: Any, expected: Any) -> None:
    assert _maker(prompt)(ROW).prompt == expected


@pytest.mark.parametrize(
    ("made", "prompt", "reference"),
    [
        ("text", _user("text"), None),
        ({"prompt": "text", "reference": "yes"}, _user("text"), "yes"),
        ({"prompt": _user("hi"), "completion": "ho"}, _user("hi"), "ho"),
        (
            {"messages": [*_user("hi"), {"role": "assistant", "content": "ho"}]},
            _user("hi"),
            "ho",
        ),
        (_user("hi"), _user("hi"), None),
    ],
)
def test_what_a_hook_may_return(made: Any, prompt: Any, reference: str | None) -> None:
    prepared = _maker({}, hook=lambda row: made)(ROW)
    assert (prepared.prompt, prepared.reference) == (prompt, reference)


@pytest.mark.parametrize(
    ("reference", "expected"), [("name", "Ratatouille"), ("{tags.cuisine}!", "french!")]
)
def test_the_reference_is_a_column_or_a_template(reference: str, expected: str) -> None:
    assert _maker({"template": "{name}", "reference": reference})(ROW).reference == expected


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        ("{nmae}", "no column nmae"),
        ("{empty}", "column empty is empty"),
        ("{tags.x}", "column tags has no x"),
        ({"column": "price"}, "not a text or a list of messages"),
        ("{tags}", "a dict is not a text"),
        ("{nan}", "column nan is nan"),
        ("{nan:.2f}", "column nan is nan"),
        ("{several}", "nan is a missing value"),
        ({"column": "nan"}, "column nan is nan"),
        ("{binary}", "binary data that is not UTF-8"),
        ("{half}", r"the prompt has half of a character \(.ud83d\)"),
        ({"template": "{name}", "reference": "half"}, "the reference has half of a character"),
        ("{name:.2f}", "column name cannot be written as {name:.2f}: Unknown format code"),
        ({"column": "calls"}, "a message with tool_calls, which a scoring does not send"),
    ],
)
def test_a_row_without_a_prompt_says_why(prompt: Any, message: str) -> None:
    with pytest.raises(LLMOpsError, match=message):
        _maker(prompt)(ROW)


def test_a_hook_that_raises_is_the_rows_error() -> None:
    def hook(row: dict[str, Any]) -> str:
        return row["missing"]

    with pytest.raises(LLMOpsError, match="KeyError"):
        _maker({}, hook=hook)(ROW)


def test_an_empty_reference_is_not_replaced_by_the_prompt() -> None:
    """The perplexity of some rows' prompts was mixed into that of the others' references."""
    named = _maker({"template": "{name}", "reference": "gold"})
    for value in ("", None, math.nan):
        prepared = named({**ROW, "gold": value})
        assert "reference is empty" in prepared.lack("logprob")
        assert prepared.lack("generate") == ""
    assert named({**ROW, "gold": "x"}).lack("logprob") == ""
    assert _maker("{name}")(ROW).lack("logprob") == "", "nothing is named: the prompt is rated"


@pytest.mark.parametrize(
    ("made", "lacks"),
    [
        ("a text", False),
        ({"prompt": "a"}, False),
        ({"prompt": "a", "reference": "b"}, False),
        ({"prompt": "a", "reference": None}, True),
        ({"prompt": "a", "completion": ""}, True),
        ([*_user("a"), {"role": "assistant", "content": ""}], True),
        (_user("a"), False),
    ],
)
def test_a_hook_names_a_reference_by_returning_one(made: Any, lacks: bool) -> None:
    prepared = _maker({}, lambda row: made)(ROW)
    assert bool(prepared.lack("logprob")) == lacks


def test_tools_of_a_hook_are_not_dropped_without_a_word() -> None:
    made = {"messages": _user("hi"), "tools": [{"type": "function"}]}
    with pytest.raises(LLMOpsError, match="`tools`, which a scoring does not send"):
        _maker({}, lambda row: made)(ROW)
