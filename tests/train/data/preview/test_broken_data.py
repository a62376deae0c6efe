"""Broken data sets: each is reported before a run exists, in one sentence with what to do next."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from llmops_kernel.errors import DataError, HookError
from llmops_kernel.views.data_preview.facts import facts
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
