"""What is trained of a chat, for templates of many families: the answer and what ends it.

What is expected is written down here for each family, as text; nothing of it is computed by the
functions that are tested.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from llmops_kernel.config.models.sections import DataConfig
from llmops_kernel.errors import DataError
from llmops_kernel.models.answer_spans import rewrites_answers, template_warnings
from llmops_kernel.train.data.examples import IGNORED, Example, tokenise
from llmops_kernel.train.data.token_cache import TokenCache
from llmops_kernel.train.hooks import Hooks
from tests.chat_templates import STYLES, Style, tokenizer_of

ONE = [("user", "2+2?"), ("assistant", "four")]
TWO = [*ONE, ("user", "3+3?"), ("assistant", "six")]
THREE = [*TWO, ("user", "1+1?"), ("assistant", "two")]


def examples(tokenizer: Any, turns: list[tuple[str, str]], **fields: Any) -> list[Example]:
    row = {"messages": [{"role": role, "content": content} for role, content in turns]}
    data = DataConfig(train="x", **fields)
    return tokenise([row], tokenizer=tokenizer, data=data, hooks=Hooks()).examples


def trained(tokenizer: Any, example: Example) -> list[str]:
    """The runs of tokens that count, as texts."""
    runs: list[list[int]] = [[]]
    for label in example.labels:
        if label == IGNORED:
            runs.append([])
        else:
            runs[-1].append(label)
    assert all(a in (b, IGNORED) for a, b in zip(example.labels, example.input_ids, strict=True))
    return [tokenizer.decode(run) for run in runs if run]


THOUGHT = "<think>\n\n</think>\n\n"
EXPECTED: dict[str, tuple[list[list[str]], list[list[str]]]] = {
    # Family: what is trained of ONE, and of TWO; a list for each sequence.
    "chatml": ([["four<|im_end|>\n"]], [["four<|im_end|>\n", "six<|im_end|>\n"]]),
    "gemma": ([["four<end_of_turn>\n"]], [["four<end_of_turn>\n", "six<end_of_turn>\n"]]),
    "glm": ([["four<|user|>"]], [["four<|user|>", "six<|user|>"]]),
    "no end": ([["four\n</s>"]], [["four\n", "six\n</s>"]]),
    "phi3": ([["four<|end|>\n<|endoftext|>"]], [["four<|end|>\n", "six<|end|>\n<|endoftext|>"]]),
    "deepseek": ([["four<|eos|>"]], [["four<|eos|>", "six<|eos|>"]]),
    "qwen3": (
        [[THOUGHT + "four<|im_end|>\n"]],
        [[THOUGHT + "four<|im_end|>\n"], [THOUGHT + "six<|im_end|>\n"]],
    ),
    # Its prompt opens a reasoning, which these answers close at once.
    "nemotron": (
        [["</think>four<|im_end|>\n"]],
        [["</think>four<|im_end|>\n", "</think>six<|im_end|>\n"]],
    ),
    "harmony": (
        [["<|channel|>final<|message|>four<|return|>"]],
        [
            ["<|channel|>final<|message|>four<|return|>"],
            ["<|channel|>final<|message|>six<|return|>"],
        ],
    ),
    "marked": ([["four<|im_end|>"]], [["four<|im_end|>", "six<|im_end|>"]]),
}


def test_each_family_is_expected() -> None:
    assert EXPECTED.keys() == STYLES.keys()


@pytest.mark.parametrize("name", STYLES)
def test_the_answers_and_their_ends_are_trained(name: str) -> None:
    tokenizer = tokenizer_of(STYLES[name], bos="<bos>" if name == "gemma" else None)
    for turns, expected in zip((ONE, TWO), EXPECTED[name], strict=True):
        found = examples(tokenizer, turns)
        assert [trained(tokenizer, one) for one in found] == expected
    assert rewrites_answers(tokenizer) == (name in ("qwen3", "harmony"))


@pytest.mark.parametrize("name", STYLES)
def test_a_text_is_what_the_template_writes_and_a_missing_end(name: str) -> None:
    tokenizer = tokenizer_of(STYLES[name], bos="<bos>" if name == "gemma" else None)
    messages = [{"role": role, "content": content} for role, content in TWO]
    whole = tokenizer.apply_chat_template(messages, tokenize=False)
    added = {"glm": "<|user|>", "no end": "</s>"}.get(name, "")
    assert tokenizer.decode(examples(tokenizer, TWO)[-1].input_ids) == whole + added
    (everything,) = examples(tokenizer, TWO, loss_on="all")
    assert tokenizer.decode(everything.input_ids) == whole + added
    assert everything.labels == everything.input_ids


def test_each_earlier_answer_that_is_rewritten_is_trained_as_it_is_asked_for() -> None:
    tokenizer = tokenizer_of(STYLES["harmony"])
    found = examples(tokenizer, THREE)
    ask = "<|start|>user<|message|>{}<|end|><|start|>assistant<|channel|>final<|message|>"
    first, second, third = ask.format("2+2?"), ask.format("3+3?"), ask.format("1+1?")
    assert [tokenizer.decode(one.input_ids) for one in found] == [
        f"{first}four<|return|>",
        f"{first}four<|end|>{second}six<|return|>",
        f"{first}four<|end|>{second}six<|end|>{third}two<|return|>",
    ]
    for one, answer in zip(found, ("four", "six", "two"), strict=True):
        assert trained(tokenizer, one) == [f"<|channel|>final<|message|>{answer}<|return|>"]


REASONED = [
    ("user", "2+2?"),
    ("assistant", "<think>\nadd\n</think>\n\nfour"),
    ("user", "3+3?"),
    ("assistant", "<think>\nagain\n</think>\n\nsix"),
]


def test_reasoning_is_trained_where_the_template_writes_it() -> None:
    tokenizer = tokenizer_of(STYLES["qwen3"])
    found = examples(tokenizer, REASONED)
    assert [trained(tokenizer, one) for one in found] == [
        ["<think>\nadd\n</think>\n\nfour<|im_end|>\n"],
        ["<think>\nagain\n</think>\n\nsix<|im_end|>\n"],
    ]
    assert "add" not in tokenizer.decode(found[1].input_ids)  # As it is when the model is asked.
    tokenizer = tokenizer_of(STYLES["nemotron"])
    (one,) = examples(tokenizer, REASONED)
    assert trained(tokenizer, one) == [
        "add\n</think>\nfour<|im_end|>\n",
        "again\n</think>\nsix<|im_end|>\n",
    ]
    tokenizer = tokenizer_of(STYLES["deepseek"])
    (one,) = examples(tokenizer, [("user", "2+2?"), ("assistant", "<think>\nadd</think>four")])
    assert trained(tokenizer, one) == ["four<|eos|>"]  # It writes no reasoning.


def test_a_glm_answer_before_a_tool_ends_with_the_tools_turn() -> None:
    style = STYLES["glm"]
    tokenizer = tokenizer_of(Style(style.template, (*style.tokens, "<|tool|>"), style.eos, None))
    turns = [*ONE, ("tool", "ok"), ("assistant", "done"), ("assistant", "more")]
    (one,) = examples(tokenizer, turns)
    assert trained(tokenizer, one) == ["four<|tool|>", "done", "more<|user|>"]


def test_marks_say_what_is_trained() -> None:
    """The author's marks leave the reasoning out, and the end of the turn, which is trained."""
    template = (
        "{% for m in messages %}{% if m.role == 'assistant' %}<|a|><think></think>"
        "{% generation %}{{ m.content }}{% endgeneration %}<|im_end|>\n"
        "{% else %}<|u|>{{ m.content }}\n{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}<|a|>{% endif %}"
    )
    tokens = ("<|a|>", "<|u|>", "<think>", "</think>")
    tokenizer = tokenizer_of(Style(template, tokens, "<|im_end|>", "<|im_end|>"))
    (one,) = examples(tokenizer, TWO)
    assert trained(tokenizer, one) == ["four<|im_end|>", "six<|im_end|>"]


def test_marks_are_used_where_the_prompt_is_no_beginning() -> None:
    template = (
        "{% if add_generation_prompt %}PROMPT:{% endif %}"
        "{% for m in messages %}{% if m.role == 'assistant' %}"
        "{% generation %}{{ m.content }}<|im_end|>{% endgeneration %}"
        "{% else %}<|u|>{{ m.content }}{% endif %}{% endfor %}"
    )
    tokenizer = tokenizer_of(Style(template, ("<|u|>",), "<|im_end|>", "<|im_end|>"))
    (one,) = examples(tokenizer, TWO)
    assert trained(tokenizer, one) == ["four<|im_end|>", "six<|im_end|>"]
    tokenizer.chat_template = template.replace("{% generation %}", "").replace(
        "{% endgeneration %}", ""
    )
    with pytest.raises(DataError, match="Row 1: the answer's tokens cannot") as caught:
        examples(tokenizer, TWO)
    assert "loss_on: all" in caught.value.remedy
    assert examples(tokenizer, TWO, loss_on="all")  # The remedy helps.
    # Marks around nothing: the whole chat was trained, its questions too.
    tokenizer.chat_template = template.replace(
        "{% generation %}", "{% generation %}{% endgeneration %}"
    ).replace("<|im_end|>{% endgeneration %}", "<|im_end|>")
    with pytest.raises(DataError, match="Row 1: the answer's tokens cannot"):
        examples(tokenizer, TWO)


def test_the_longest_example_of_each_answer_is_cut_alone() -> None:
    tokenizer = tokenizer_of(STYLES["harmony"])
    first, second = examples(tokenizer, TWO, max_length=64)
    assert len(first.input_ids) < 64 == len(second.input_ids)


def test_the_template_is_warned_of_by_name() -> None:
    def said(style: Style) -> list[str]:
        return [one.message for one in template_warnings(tokenizer_of(style))]

    quiet = ("chatml", "glm", "phi3", "qwen3", "harmony", "marked")
    assert [said(STYLES[name]) for name in quiet] == [[]] * len(quiet)
    (no_end,) = said(STYLES["no end"])
    assert "writes nothing that ends an answer" in no_end
    assert "'</s>' is added and trained" in no_end
    (dropped, prompt) = said(STYLES["deepseek"])
    assert "leaves the reasoning of an answer (<think>...</think>) out" in dropped
    assert r"ends its prompt for an answer with '<think>\n'" in prompt
    (text,) = said(Style(STYLES["chatml"].template, (), "</s>", None))
    assert "'<|im_end|>', which is not one token" in text
    bare = tokenizer_of(STYLES["no end"])
    bare.eos_token = None
    (nothing,) = template_warnings(bare)
    assert "will not learn where an answer ends" in nothing.message
    (one,) = examples(bare, ONE)
    assert trained(bare, one) == ["four\n"]


def test_a_template_that_leaves_the_answer_out_is_refused() -> None:
    """As those for images, which look for a list of parts in a message."""
    template = (
        "{% for m in messages %}<|{{ m.role }}|>{% for p in m.content %}{{ p.text }}{% endfor %}"
        "<|end|>{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
    )
    tokenizer = tokenizer_of(Style(template, ("<|user|>", "<|assistant|>"), "<|end|>", "<|end|>"))
    with pytest.raises(DataError, match="it writes nothing of the answer"):
        examples(tokenizer, ONE)


def test_tokens_kept_by_an_earlier_run_are_the_same(tmp_path: Path) -> None:
    tokenizer = tokenizer_of(STYLES["harmony"])
    row = {"messages": [{"role": role, "content": content} for role, content in TWO]}
    done = tokenise([row], tokenizer=tokenizer, data=DataConfig(train="x"), hooks=Hooks())
    assert (done.num_chats, done.num_apart, done.num_split) == (1, 1, 0)
    cache = TokenCache(tmp_path)
    cache.write("key", done)
    assert cache.read("key") == replace(done, is_kept=True)
