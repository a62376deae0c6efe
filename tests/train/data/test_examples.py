"""Which tokens count for the loss, checked against the text they stand for."""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmops_kernel.config.models.sections import DataConfig
from llmops_kernel.errors import DataError, HookError
from llmops_kernel.train.data.examples import (
    IGNORED,
    Example,
    own_prompts,
    pack,
    prompts,
    tokenise,
)
from llmops_kernel.train.data.skipped import field_warnings
from llmops_kernel.train.hooks import Hooks
from tests.messages import missing

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


def learnt(tokenizer: Any, row: dict[str, Any], **data: Any) -> str:
    """What the loss looks at of one row."""
    config = DataConfig(train="x", **data)
    return counted_text(
        tokenizer, tokenise([row], tokenizer=tokenizer, data=config, hooks=Hooks()).examples[0]
    )


CONTEXT = [
    {"role": "user", "content": "Q1"},
    {"role": "assistant", "content": "WRONG", "weight": 0},
    {"role": "user", "content": "Q2"},
    {"role": "assistant", "content": "right", "weight": 1},
]


def test_a_message_with_a_weight_of_0_is_only_read(tokenizer: Any) -> None:
    assert learnt(tokenizer, {"messages": CONTEXT}) == "right<|end|>"
    turns = [
        {"from": "human", "value": "Q1"},
        {"from": "gpt", "value": "WRONG", "weight": 0.0},
        {"from": "human", "value": "Q2"},
        {"from": "gpt", "value": "right"},
    ]
    assert learnt(tokenizer, {"conversations": turns}) == "right<|end|>"
    every = learnt(tokenizer, {"messages": CONTEXT}, loss_on="all")
    assert "WRONG" not in every
    assert "Q1" in every
    assert "right<|end|>" in every


@pytest.mark.parametrize(
    "row",
    [
        {"messages": CHAT["messages"], "weight": 0},
        {"prompt": "a", "completion": "bad", "label": False},
        {"prompt": "a", "completion": "bad", "label": "false"},
        {"text": "bad", "weight": "0"},
    ],
)
@pytest.mark.parametrize("loss_on", ["answer", "all"])
def test_rows_that_nothing_is_to_be_learnt_from_are_left_out_and_named(
    tokenizer: Any, row: dict[str, Any], loss_on: Any
) -> None:
    data = DataConfig(train="x", loss_on=loss_on)
    good = {"prompt": "a", "completion": "good", "label": True}
    done = tokenise([good, row], tokenizer=tokenizer, data=data, hooks=Hooks())
    assert (len(done.examples), done.num_empty) == (1, 1)
    ((use, count),) = done.uses.items()
    assert use.said(count).startswith(f"1 row has `{use.field}`, which is 0 or false: nothing")
    found = prompts([row, good], tokenizer=tokenizer, data=data, hooks=Hooks())
    assert [(one.reference, one.number) for one in found] == [("good", 2)]


def test_the_class_of_a_text_is_a_column_and_no_judgement(tokenizer: Any) -> None:
    row = {"text": "a review", "label": 0, "id": 7}
    done = tokenise([row], tokenizer=tokenizer, data=DataConfig(train="x"), hooks=Hooks())
    assert (done.num_empty, done.unused) == (0, ("id", "label"))


def test_a_system_field_and_a_history_stand_before_the_messages(tokenizer: Any) -> None:
    rows = [
        {"system": "Be a pirate.", **CHAT},
        {"system": "Be a pirate.", "prompt": "Hi", "completion": "Arr."},
        {
            "system": "Be a pirate.",
            "instruction": "And now?",
            "output": "Arr.",
            "history": [["Who?", "Me."]],
        },
    ]
    done = tokenise(rows, tokenizer=tokenizer, data=DataConfig(train="x"), hooks=Hooks())
    texts = [tokenizer.decode(one.input_ids) for one in done.examples]
    assert all(text.startswith("<|system|>Be a pirate.<|end|><|user|>") for text in texts)
    assert texts[2].endswith(
        "Who?<|end|><|assistant|>Me.<|end|><|user|>And now?<|end|><|assistant|>Arr.<|end|>"
    )
    own = [{"role": "system", "content": "Be a pirate."}, *CHAT["messages"]]
    before = {"messages": own, "history": [["Who?", "Me."]]}
    for row in (before, {**before, "system": "Be a pirate."}):
        (one,) = tokenise(
            [row], tokenizer=tokenizer, data=DataConfig(train="x"), hooks=Hooks()
        ).examples
        assert tokenizer.decode(one.input_ids).startswith(
            "<|system|>Be a pirate.<|end|><|user|>Who?<|end|><|assistant|>Me.<|end|><|user|>2+2?"
        )
    twice = {"system": "Be brief.", "messages": [{"role": "system", "content": "Be long."}]}
    with pytest.raises(DataError, match="a system message that says something else"):
        tokenise([twice], tokenizer=tokenizer, data=DataConfig(train="x"), hooks=Hooks())


TOOLS = [{"type": "function", "function": {"name": "time_of", "parameters": {"type": "object"}}}]
CALL = [{"type": "function", "function": {"name": "time_of", "arguments": '{"city": "Oslo"}'}}]
TOOL_TEMPLATE = (
    "{% if tools %}<|system|>{{ tools | tojson }}<|end|>{% endif %}"
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}"
    "{% for c in m.tool_calls or [] %}{{ c.function.arguments | tojson }}{% endfor %}<|end|>"
    "{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


@pytest.fixture
def with_tools(tiny_llama: Any) -> Any:
    from transformers import AutoTokenizer

    found = AutoTokenizer.from_pretrained(str(tiny_llama))
    found.chat_template = TOOL_TEMPLATE
    return found


@pytest.mark.parametrize("tools", [TOOLS, json.dumps(TOOLS)])
def test_tools_are_what_the_template_makes_of_them(
    tokenizer: Any, with_tools: Any, tools: Any
) -> None:
    messages = [
        {"role": "user", "content": "Time?"},
        {"role": "assistant", "content": None, "tool_calls": CALL},
        {"role": "tool", "content": "12:00", "tool_calls": None},
        {"role": "assistant", "content": "Noon.", "tool_calls": None},
    ]
    row = {"messages": messages, "tools": tools}
    data = DataConfig(train="x")
    done = tokenise([row], tokenizer=with_tools, data=data, hooks=Hooks())
    # By Transformers itself, from messages as its documentation has them.
    called = [
        {"type": "function", "function": {**CALL[0]["function"], "arguments": {"city": "Oslo"}}}
    ]  # type: ignore[dict-item]
    plain = [
        {"role": "user", "content": "Time?"},
        {"role": "assistant", "content": "", "tool_calls": called},
        {"role": "tool", "content": "12:00"},
        {"role": "assistant", "content": "Noon."},
    ]
    assert done.examples[0].input_ids == with_tools.apply_chat_template(
        plain, tools=TOOLS, tokenize=True, return_dict=False
    )
    assert counted_text(with_tools, done.examples[0]) == '{"city": "Oslo"}<|end|>Noon.<|end|>'
    assert not list(field_warnings("x", done.uses, with_tools))
    (asked,) = prompts(
        [{**row, "messages": messages[:2]}], tokenizer=with_tools, data=data, hooks=Hooks()
    )
    assert asked.reference == '{"city": "Oslo"}'  # It was empty.
    none = tokenise([row], tokenizer=tokenizer, data=data, hooks=Hooks())
    calls, warning = field_warnings("t.jsonl", none.uses, tokenizer)
    assert "`tool_calls`" in calls.message
    assert missing(warning.message, "t.jsonl", "1 row", "`tools`", "chat template") == []


def test_fields_of_other_trainings_and_columns_are_named(tokenizer: Any) -> None:
    rows = [{**CHAT, "images": ["a.png"], "topic": "sums"}, {**CHAT, "weight": 0.5, "images": []}]
    done = tokenise(rows, tokenizer=tokenizer, data=DataConfig(train="x"), hooks=Hooks())
    said = [use.said(count) for use, count in sorted(done.uses.items())]
    assert said[0].startswith("1 row has `images`, which is not used: this training")
    assert missing(said[1], "1 row", "`weight`", "counts as 1") == []
    assert done.unused == ("topic",)
    hooks = Hooks(format_example=lambda row: {**CHAT, "image": np.zeros((2, 2))})
    done = tokenise([CHAT], tokenizer=tokenizer, data=DataConfig(train="x"), hooks=hooks)
    assert [use.field for use in done.uses] == ["image"]


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ({"prompt": "a", "completion": float("nan")}, "`completion` is nan (a missing value)"),
        ({"prompt": float("inf"), "completion": "a"}, "`prompt` is inf"),
        ({"prompt": None, "completion": "a"}, "`prompt` is null"),
        ({"prompt": b"\xff\xfe", "completion": "a"}, "`prompt` is binary data"),
        ({"text": float("nan")}, "`text` is nan (a missing value)"),
        ({"text": "cut \ud83d"}, r"`text` has half of a character (\ud83d)"),
        ({"prompt": "cut \ud83d", "completion": "a"}, r"message 1 has half of a character"),
        ({"system": 5, **CHAT}, "`system` is a number"),
        ({"tools": "{", **CHAT}, "`tools` is no JSON"),
        ({"instruction": "a", "output": "b", "history": ["c"]}, "turn 1 of `history`"),
        (
            {"system": "a", "messages": [{"role": "system", "tool_calls": [{}]}]},
            "a system message that says something else",
        ),
    ],
)
def test_what_is_no_text_is_a_broken_row(tokenizer: Any, row: dict[str, Any], says: str) -> None:
    with pytest.raises(DataError, match=re.escape(says)) as caught:
        tokenise([row], tokenizer=tokenizer, data=DataConfig(train="x"), hooks=Hooks())
    assert caught.value.message.startswith("Row 1, ")


def test_binary_text_is_read_and_said(tokenizer: Any) -> None:
    row = {"prompt": "Smørbrød".encode(), "completion": "Ja"}
    done = tokenise([row], tokenizer=tokenizer, data=DataConfig(train="x"), hooks=Hooks())
    assert tokenizer.decode(done.examples[0].input_ids).startswith("<|user|>Smørbrød<|end|>")
    assert [use.said(n) for use, n in done.uses.items()] == [
        "1 row has `prompt`, which is binary, and was read as UTF-8 text"
    ]


GEMMA_TEMPLATE = (
    "{{ bos_token }}{% if messages[0]['role'] == 'system' %}"
    "{{ raise_exception('System role not supported') }}{% endif %}"
    "{% for m in messages %}{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate user/assistant') }}{% endif %}"
    "<|{{ m['role'] }}|>{{ m['content'] | trim }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


@pytest.mark.parametrize(
    ("roles", "says"),
    [
        (["user", "user", "assistant"], "Conversation roles must alternate"),
        (["system", "user", "assistant"], "System role not supported"),
        (["assistant", "user", "assistant"], "Conversation roles must alternate"),
    ],
)
def test_what_a_template_refuses_is_a_broken_row(
    with_tools: Any, roles: list[str], says: str
) -> None:
    with_tools.chat_template = GEMMA_TEMPLATE
    bad = {"messages": [{"role": role, "content": "a"} for role in roles]}
    with pytest.raises(DataError, match=f"Row 2 is refused by the model's chat template: {says}"):
        tokenise([CHAT, bad], tokenizer=with_tools, data=DataConfig(train="x"), hooks=Hooks())
    data = DataConfig(train="x", on_error="skip")
    done = tokenise([CHAT, bad], tokenizer=with_tools, data=data, hooks=Hooks())
    assert len(done.examples) == len(done.broken) == 1
    assert says in done.broken[0]
    if roles[-1] == "assistant" and roles[0] != "assistant":
        with pytest.raises(DataError, match="Row 1 is refused"):
            prompts([bad], tokenizer=with_tools, data=DataConfig(train="x"), hooks=Hooks())


@pytest.mark.parametrize("loss_on", ["answer", "all"])
def test_a_chat_that_begins_with_the_assistant_is_learnt(tokenizer: Any, loss_on: Any) -> None:
    messages = [{"role": "assistant", "content": "Welcome."}, *CHAT["messages"]]
    found = learnt(tokenizer, {"messages": messages}, loss_on=loss_on)
    answers = "Welcome.<|end|>four<|end|>six<|end|>"
    assert found == answers if loss_on == "answer" else "<|user|>2+2?" in found


def test_a_text_that_begins_with_the_first_token_has_it_once(tiny_llama: Any) -> None:
    from tokenizers.processors import TemplateProcessing
    from transformers import AutoTokenizer

    found = AutoTokenizer.from_pretrained(str(tiny_llama))
    found.bos_token = "<|user|>"
    found.backend_tokenizer.post_processor = TemplateProcessing(
        single="<|user|> $A", special_tokens=[("<|user|>", found.bos_token_id)]
    )
    rows = [{"text": "abc"}, {"text": "<|user|>abc"}]
    done = tokenise(rows, tokenizer=found, data=DataConfig(train="x"), hooks=Hooks())
    for example in done.examples:
        assert found.decode(example.input_ids) == "<|user|>abc<|end|>"
    asked = own_prompts(["<|user|>abc"], tokenizer=found, data=DataConfig(train="x", format="text"))
    assert found.decode(asked[0].input_ids) == "<|user|>abc"


def test_calls_and_thoughts_that_a_template_does_not_write_are_named(
    tokenizer: Any, with_tools: Any
) -> None:
    messages = [
        {"role": "user", "content": "Time?"},
        {"role": "assistant", "content": "", "tool_calls": CALL, "reasoning_content": "Hm."},
    ]
    said = {}
    for one in (tokenizer, with_tools):
        done = tokenise(
            [{"messages": messages}], tokenizer=one, data=DataConfig(train="x"), hooks=Hooks()
        )
        said[one is tokenizer] = [w.message for w in field_warnings("x", done.uses, one)]
    asked = {"prompt": messages[:1], "completion": messages[1:], "tools": " "}
    done = tokenise([asked], tokenizer=tokenizer, data=DataConfig(train="x"), hooks=Hooks())
    assert {use.field for use in done.uses} == {"reasoning_content", "tool_calls"}
    assert [text.split("`")[1] for text in said[True]] == ["reasoning_content", "tool_calls"]
    assert [text.split("`")[1] for text in said[False]] == ["reasoning_content"]


@pytest.mark.parametrize("row_format", ["chat", "text"])
def test_a_prompt_of_the_config_that_is_refused_is_named(tokenizer: Any, row_format: Any) -> None:
    data = DataConfig(train="x", format=row_format)
    with pytest.raises(DataError, match=r"evaluation\.prompts: 'cut \\ud83d' is refused") as caught:
        own_prompts(["fine", "cut \ud83d"], tokenizer=tokenizer, data=data)
    assert caught.value.remedy == "correct it, or leave it out"
