"""Broken data sets: each is reported before a run exists, in one sentence with what to do next."""

from __future__ import annotations

import gzip
import json
import math
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from llmops_kernel.errors import DataError, HookError
from llmops_kernel.views.preview_facts import facts
from tests.train.data.preview.test_work import chat, looked_at

Make = Callable[..., Any]
Rows = list[Any]

FINE = [chat(f"question {n}", f"answer {n}") for n in range(4)]
TALK = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]
HOOK = "def format_example(row):\n    return {}\n"


def lines(*rows: Any) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def parquet(**columns: Any) -> Callable[[Path], None]:
    return lambda path: pq.write_table(pa.table(columns), path)


def arrow(**columns: Any) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        table = pa.table(columns)
        with pa.ipc.new_file(path, table.schema) as file:
            file.write_table(table)

    return write


def cut_off(path: Path) -> None:
    pq.write_table(pa.table({"text": ["one", "two"]}), path)
    path.write_bytes(path.read_bytes()[:-20])


# File, its content, sections of the config, what the error says.
REFUSED: dict[str, tuple[str, Any, dict[str, Any], str]] = {
    "no file": ("other.jsonl", b"", {}, r"'train\.jsonl' does not exist"),
    "empty file": ("train.jsonl", b"", {}, r"train\.jsonl has no rows"),
    "only empty lines": ("train.jsonl", b"\n\n \n", {}, r"train\.jsonl has no rows"),
    "line is cut": ("train.jsonl", lines(*FINE) + b'{"prompt": "q', {}, r"row 5: not valid JSON"),
    "not JSON at all": ("train.jsonl", b"question,answer\nq,a\n", {}, r"row 1: not valid JSON"),
    "numbers": ("train.jsonl", b"1\n2\n", {}, r"row 1: a int where an object is needed"),
    "lists": ("train.jsonl", lines(["q", "a"]), {}, r"row 1: a list where an object is needed"),
    "UTF-16": ("train.jsonl", lines(*FINE).decode().encode("utf-16"), {}, r"row 1: UTF-16"),
    "Latin-1": (
        "train.jsonl",
        '{"text": "d\xe9j\xe0"}\n'.encode("latin-1"),
        {},
        r"row 1: not UTF-8 .*0xe9",
    ),
    "compressed": ("train.jsonl", gzip.compress(lines(*FINE)), {}, r"row 1: compressed"),
    "list is not closed": ("train.json", b'[{"text": "a"}, {"text": "b"', {}, r"does not end"),
    "Parquet is cut": ("train.parquet", cut_off, {}, r"train\.parquet cannot be read as Parquet"),
    "Parquet without rows": (
        *("train.parquet", parquet(text=pa.array([], pa.string())), {}),
        r"train\.parquet has no rows",
    ),
    "Parquet of numbers": (
        *("train.parquet", parquet(text=[1, 2]), {}),
        r"Row 1\b.*`text` is a number",
    ),
    "unknown ending": ("train.xlsx", b"PK", {}, r"files ending in \.xlsx are not read"),
    "quotation mark is open": ("train.csv", b'text\n"one\n', {}, r"cannot be read as CSV"),
    "no known columns": ("train.jsonl", lines({"q": "x", "a": "y"}), {}, r"Row 1\b.*\bq\b"),
    "another format": (
        *("train.jsonl", lines(*FINE), {"data": {"format": "alpaca"}}),
        r"Row 1, read with format=alpaca",
    ),
    "mixed formats": (
        *("train.jsonl", lines(FINE[0], {"text": "t"}), {"data": {"format": "prompt_completion"}}),
        r"Row 2, read with format=prompt_completion",
    ),
    "text is null": ("train.jsonl", lines({"text": "t"}, {"text": None}), {}, r"Row 2\b.*null"),
    "messages is a text": ("train.jsonl", lines({"messages": "hi"}), {}, r"`messages` is a text"),
    "no messages": ("train.jsonl", lines({"messages": []}), {}, r"Row 1\b.*`messages`"),
    "unknown sender": (
        *("train.jsonl", lines({"conversations": [{"from": "robot", "value": "q"}]}), {}),
        r"Row 1\b.*`from` of turn 1 is 'robot'",
    ),
    "message without content": (
        *("train.jsonl", lines({"messages": [TALK[0], {"role": "assistant"}]}), {}),
        r"Row 1\b.*`content`",
    ),
    "half of a character": (
        *("train.jsonl", lines(*FINE, {"text": "cut \ud83d"}), {}),
        r"train\.jsonl: Row 5\b.*half of a character",
    ),
    "NaN": ("train.jsonl", lines(*FINE, chat("q", math.nan)), {}, r"Row 5\b.*nan \(a missing"),
    "a value is missing in a CSV": (
        *("train.csv", b"prompt,completion,system\na,b,\nc,,\n", {}),
        r"train\.csv: Row 2\b.*`completion` is null",
    ),
    "null in Arrow": (
        *("train.arrow", arrow(prompt=["a", "b"], completion=["c", None]), {}),
        r"Row 2\b.*`completion` is null",
    ),
    "NaN of pandas": (
        *("train.parquet", parquet(prompt=["a", "b"], completion=[math.nan, 2.0]), {}),
        r"Row 1\b.*`completion` is nan \(a missing value\)",
    ),
    "NaN in Parquet": (
        *("train.parquet", parquet(text=[1.5, math.nan]), {"data": {"format": "text"}}),
        r"Row 1\b.*`text` is a number",
    ),
    "Parquet of binary": (
        *("train.parquet", parquet(prompt=[b"a", b"\xff"], completion=["b", "c"]), {}),
        r"Row 2\b.*`prompt` is binary data that is not UTF-8",
    ),
    "evaluation is empty": (
        *("eval.jsonl", b"", {"data": {"eval": "eval.jsonl"}}),
        r"eval\.jsonl has no rows",
    ),
    "hook returns nothing": (
        "train.jsonl",
        lines(*FINE),
        {"hooks": {"file": "hooks.py"}},
        r"Row 1\b.* has no keys",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_data_that_cannot_be_trained_on_is_refused_in_one_sentence(
    tiny_llama: Path, workspace: Path, make_config: Make, name: str
) -> None:
    file, content, sections, expected = REFUSED[name]
    if file != "eval.jsonl":
        (workspace / "train.jsonl").unlink()
    (workspace / "hooks.py").write_text(HOOK)
    if callable(content):
        content(workspace / file)
    else:
        (workspace / file).write_bytes(content)
    train = file if file.startswith("train.") else "train.jsonl"
    data = {"train": train} | sections.get("data", {})
    with pytest.raises((DataError, HookError)) as caught:
        looked_at(make_config(**{**sections, "data": data}), workspace)
    assert re.search(expected, caught.value.message), caught.value.message
    assert caught.value.remedy
    assert "\n" not in caught.value.message.strip()
    assert "Traceback" not in caught.value.message


# Rows of training, rows of evaluation, the fact that warns, what it says.
SUSPECT: dict[str, tuple[Rows, Rows, str, str]] = {
    "all are cut": ([chat("q", "x" * 80)] * 2, [], "cut", r"2 of 2 rows \(100"),
    "no answers": ([chat("q" * 80, "a")] * 2, [], "no loss", r"no row has .*: a run would fail$"),
    "answers are cut off": ([chat("q" * 80, "a"), chat("q", "a")], [], "no loss", r": row 1$"),
    "the same row twice": ([*FINE, FINE[0]], [], "duplicates", r"rows 1, 5$"),
    "evaluation is training": (FINE, FINE, "leaks", r"4 of 4 rows of evaluation are among"),
    "images": ([{**FINE[0], "images": ["a.png"]}], [], "fields", r"1 row has `images`, which"),
    "tools": ([{**FINE[0], "tools": [{}]}], [], "fields", r"`tools`, which is not in the model's"),
    "bad answers": (
        *([FINE[0], {**FINE[1], "label": False}], []),
        *("fields", r"1 row has `label`, which is 0 or false: nothing of such a row is learnt$"),
    ),
    "fields of evaluation": (
        *(FINE, [{**chat("new", "n"), "images": ["a.png"]}]),
        *("evaluation, fields", r"1 row has `images`"),
    ),
    "one leaks": (FINE, [chat("new", "n"), FINE[2]], "leaks", r"row 2 is training row 3$"),
}


@pytest.mark.parametrize("name", SUSPECT)
def test_data_that_trains_and_should_not_is_a_warning(
    tiny_llama: Path, workspace: Path, make_config: Make, name: str
) -> None:
    train, held_out, label, expected = SUSPECT[name]
    (workspace / "train.jsonl").write_bytes(lines(*train))
    (workspace / "eval.jsonl").write_bytes(lines(*held_out))
    data = {"max_length": 40} | ({"eval": "eval.jsonl"} if held_out else {})
    found = facts(looked_at(make_config(data=data), workspace))
    (warning,) = [fact for fact in found if fact.label == label]
    assert warning.level == "warning"
    assert re.search(expected, warning.text), warning.text


@pytest.fixture
def refusing(tiny_llama: Path, workspace: Path) -> Path:
    """A model whose template refuses a system message, as Gemma's does."""
    folder = workspace / "refusing"
    shutil.copytree(tiny_llama, folder)
    template = (
        "{% if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}"
        "{% endif %}{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}"
        "{% if add_generation_prompt %}<|assistant|>{% endif %}"
    )
    (folder / "chat_template.jinja").write_text(template)
    return folder


def test_what_the_template_refuses_is_named_or_skipped(
    refusing: Path, workspace: Path, make_config: Make
) -> None:
    bad = {"messages": [{"role": "system", "content": "Be brief."}, *TALK]}
    (workspace / "train.jsonl").write_bytes(lines(*FINE, bad))
    with pytest.raises(DataError, match=r"^train\.jsonl: Row 5 is refused .*System role not supp"):
        looked_at(make_config(model="refusing"), workspace)
    found = looked_at(make_config(model="refusing", data={"on_error": "skip"}), workspace)
    assert (found.train.num_rows, found.train.num_broken) == (4, 1)
    assert "Row 5 is refused" in found.train.broken[0]
    assert [row.number for row in found.rows] == [1, 2, 3, 4]


def test_rows_that_call_other_tools_are_no_duplicates(
    tiny_llama: Path, workspace: Path, make_config: Make
) -> None:
    def row(name: str, tool: str) -> Any:
        called = [{"type": "function", "function": {"name": name, "arguments": {}}}]
        answer = {"role": "assistant", "content": None, "tool_calls": called}
        return {"messages": [TALK[0], answer], "tools": [{"name": tool}]}

    every = [row("a", "x"), row("b", "x"), row("a", "y"), row("a", "x")]
    (workspace / "train.jsonl").write_bytes(lines(*every))
    found = looked_at(make_config(), workspace)
    assert found.train.num_duplicates == 1
    assert found.train.duplicates == [[1, 4]]
    assert found.train.num_unanswered == 0


def test_columns_that_are_not_used_are_named_as_information(
    tiny_llama: Path, workspace: Path, make_config: Make
) -> None:
    (workspace / "train.jsonl").write_bytes(
        lines(*({**row, "id": 1, "topic": "x"} for row in FINE))
    )
    found = facts(looked_at(make_config(), workspace))
    (fact,) = [fact for fact in found if fact.label == "columns"]
    assert (fact.text, fact.level) == ("not used: id, topic", "plain")
