"""Which tokens count for the loss, checked against the text they stand for."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmops_kernel.config.models.sections import DataConfig
from llmops_kernel.errors import DataError, HookError
from llmops_kernel.train.data.examples import IGNORED, Example, pack, prompts, tokenise
from llmops_kernel.train.hooks import Hooks

CHAT = {
    "messages": [
        {"role": "user", "content": "2+2?"},
        {"role": "assistant", "content": "four"},
        {"role": "user", "content": "3+3?"},
        {"role": "assistant", "content": "six"},
    ]
}


def counted_text(tokenizer: Any, example: Example) -> str:
    """What the loss looks at, as text."""
    return tokenizer.decode([label for label in example.labels if label != IGNORED])


def test_only_the_answers_and_their_end_count(tokenizer: Any) -> None:
    done = tokenise([CHAT], tokenizer=tokenizer, data=DataConfig(train="x"), hooks=Hooks())
    assert counted_text(tokenizer, done.examples[0]) == "four<|end|>six<|end|>"


def test_all_tokens_count_when_asked_for(tokenizer: Any) -> None:
    data = DataConfig(train="x", loss_on="all")
    example = tokenise([CHAT], tokenizer=tokenizer, data=data, hooks=Hooks()).examples[0]
    assert example.labels == example.input_ids


def test_prompt_and_completion_are_a_chat_of_two(tokenizer: Any) -> None:
    row = {"prompt": "name a fish", "completion": "cod"}
    done = tokenise([row], tokenizer=tokenizer, data=DataConfig(train="x"), hooks=Hooks())
    assert counted_text(tokenizer, done.examples[0]) == "cod<|end|>"
    assert tokenizer.decode(done.examples[0].input_ids).startswith("<|user|>name a fish")


def test_text_counts_whole_and_ends_with_the_end_token(tokenizer: Any) -> None:
    done = tokenise(
        [{"text": "abc"}], tokenizer=tokenizer, data=DataConfig(train="x"), hooks=Hooks()
    )
    assert counted_text(tokenizer, done.examples[0]) == "abc<|end|>"


def test_long_rows_are_cut_and_counted(tokenizer: Any) -> None:
    data = DataConfig(train="x", max_length=10, long_texts="cut")
    done = tokenise([{"text": "a" * 50}], tokenizer=tokenizer, data=data, hooks=Hooks())
    assert [len(one.input_ids) for one in done.examples] == [10]
    assert (done.num_cut, done.num_split) == (1, 0)


def test_rows_whose_answer_was_cut_away_are_left_out_and_counted(tokenizer: Any) -> None:
    data = DataConfig(train="x", max_length=10)
    long = {"prompt": "q" * 50, "completion": "a"}
    done = tokenise([long, {"text": "abc"}], tokenizer=tokenizer, data=data, hooks=Hooks())
    assert (len(done.examples), done.num_empty) == (1, 1)


@pytest.mark.parametrize(
    ("format", "columns", "row", "text"),
    [
        ("alpaca", {}, {"instruction": "add", "input": "1 1", "output": "2"}, "add\n1 1"),
        ("alpaca", {}, {"instruction": "add", "input": None, "output": "2"}, "add<|end|>"),
        ("alpaca", {"instruction": "q", "output": "a"}, {"q": "add", "a": "2"}, "add<|end|>"),
        ("prompt_completion", {}, {"prompt": "add", "completion": 2}, "add<|end|>"),
        (
            "sharegpt",
            {"conversations": "messages"},  # else `auto` would take them for a chat
            {"messages": [{"from": "human", "value": "add"}, {"from": "gpt", "value": "2"}]},
            "add<|end|>",
        ),
    ],
)
def test_formats_and_columns_become_chats(
    tokenizer: Any, format: Any, columns: dict[str, str], row: dict[str, Any], text: str
) -> None:
    for wanted in (format, "auto"):
        data = DataConfig(train="x", format=wanted, columns=columns)
        example = tokenise([row], tokenizer=tokenizer, data=data, hooks=Hooks()).examples[0]
        assert counted_text(tokenizer, example) == "2<|end|>"
        assert tokenizer.decode(example.input_ids).startswith(f"<|user|>{text}")


def test_a_column_of_another_name_is_plain_text(tokenizer: Any) -> None:
    data = DataConfig(train="x", columns={"text": "content"})
    row = {"content": "abc", "id": 1}
    done = tokenise([row], tokenizer=tokenizer, data=data, hooks=Hooks())
    assert counted_text(tokenizer, done.examples[0]) == "abc<|end|>"


def test_the_hook_gets_the_renamed_row(tokenizer: Any) -> None:
    data = DataConfig(train="x", columns={"text": "content"})
    hooks = Hooks(format_example=lambda row: row["text"] + "!")
    done = tokenise([{"content": "a"}], tokenizer=tokenizer, data=data, hooks=hooks)
    assert counted_text(tokenizer, done.examples[0]) == "a!<|end|>"


def test_a_column_that_a_row_lacks_is_reported(tokenizer: Any) -> None:
    data = DataConfig(train="x", columns={"text": "contents"})
    with pytest.raises(DataError, match=r"Row 1.*no column contents.*content") as caught:
        tokenise([{"content": "a"}], tokenizer=tokenizer, data=data, hooks=Hooks())
    assert "data.columns" in caught.value.remedy


@pytest.mark.parametrize(
    ("row", "format", "fragments"),
    [
        ({"question": "a"}, "auto", ["Row 1", "question"]),
        ({"text": "a"}, "chat", ["Row 1", "format=chat"]),
        ({"messages": []}, "auto", ["Row 1", "messages"]),
        ({"messages": [{"role": "user"}]}, "auto", ["Row 1", "`content` of message 1"]),
        ({"text": ""}, "text", ["Nothing is left to train on"]),
    ],
)
def test_unusable_rows_are_reported_with_their_number(
    tokenizer: Any, row: dict[str, Any], format: Any, fragments: list[str]
) -> None:
    with pytest.raises(DataError) as caught:
        tokenise(
            [row], tokenizer=tokenizer, data=DataConfig(train="x", format=format), hooks=Hooks()
        )
    assert all(fragment in caught.value.message for fragment in fragments)
    assert caught.value.remedy


def test_a_failing_hook_names_the_row(tokenizer: Any) -> None:
    hooks = Hooks(format_example=lambda row: {"text": row["missing"]})
    with pytest.raises(HookError, match="row 2") as caught:
        tokenise(
            [{"missing": "x"}, {"other": "y"}],
            tokenizer=tokenizer,
            data=DataConfig(train="x"),
            hooks=hooks,
        )
    assert isinstance(caught.value.__cause__, KeyError)


def test_the_hook_decides_the_text(tokenizer: Any) -> None:
    hooks = Hooks(format_example=lambda row: row["a"] + "!")
    done = tokenise([{"a": "hey"}], tokenizer=tokenizer, data=DataConfig(train="x"), hooks=hooks)
    assert counted_text(tokenizer, done.examples[0]) == "hey!<|end|>"


def test_a_prompt_ends_where_the_answer_would_begin(tokenizer: Any) -> None:
    found = prompts([CHAT], tokenizer=tokenizer, data=DataConfig(train="x"), hooks=Hooks())
    assert found[0].prompt.endswith("3+3?<|end|><|assistant|>")
    assert found[0].reference == "six"


@given(st.lists(st.integers(2, 40), min_size=1, max_size=60))
def test_packing_keeps_every_token_once_and_every_row_whole(sizes: list[int]) -> None:
    examples = [
        Example([1000 * i + j for j in range(size)], [1000 * i + j for j in range(size)])
        for i, size in enumerate(sizes)
    ]
    packs = pack(examples, max_length=40)
    tokens = [token for one in packs for token in one.input_ids]
    assert sorted(tokens) == sorted(t for e in examples for t in e.input_ids)
    for one in packs:
        assert len(one.input_ids) == sum(one.lengths) <= 40
        starts = [i for i, position in enumerate(one.position_ids) if position == 0]
        assert len(starts) == len(one.lengths)
        # No row predicts its first token from the row before it.
        assert all(one.labels[start] == IGNORED for start in starts)
        # Rows lie whole, one after the other.
        for start, length in zip(starts, one.lengths, strict=True):
            row = one.input_ids[start : start + length]
            assert row == list(range(row[0], row[0] + length))


def test_broken_rows_are_skipped_and_named_where_the_config_says_so(tokenizer: Any) -> None:
    data = DataConfig(train="-", on_error="skip")
    found = tokenise(
        [{"text": "one"}, {"txt": "two"}, {"text": "three"}],
        tokenizer=tokenizer,
        data=data,
        hooks=Hooks(),
    )
    assert len(found.examples) == 2
    (broken,) = found.broken
    assert broken.startswith("Row 2, ")
    with pytest.raises(DataError, match=r"1 rows are broken \(Row 1"):
        tokenise([{"a": 1}], tokenizer=tokenizer, data=data, hooks=Hooks())
