"""Every kind of source gives the same rows; every broken one says what is wrong with it."""

from __future__ import annotations

import json
from pathlib import Path

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from llmops_kernel.errors import DataError, LLMOpsError
from llmops_kernel.train.data.sources import Source

ROWS = [{"text": "one"}, {"text": "two, ü"}, {"text": "three"}]
FILES = [
    f"rows.{end}" for end in ["jsonl", "ndjson", "json", "csv", "tsv", "txt", "parquet", "arrow"]
]


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    import datasets

    lines = "\n".join(json.dumps(row) for row in ROWS)
    table = pa.Table.from_pylist(ROWS)
    (tmp_path / "rows.jsonl").write_text(lines + "\n\n")
    (tmp_path / "rows.ndjson").write_text(lines)
    (tmp_path / "rows.json").write_text(json.dumps(ROWS, indent=1))
    (tmp_path / "rows.csv").write_text('text\none\n"two, ü"\nthree\n')
    (tmp_path / "rows.tsv").write_text("text\none\ntwo, ü\nthree\n")
    (tmp_path / "rows.txt").write_text("one\n\ntwo, ü\nthree\n")
    pq.write_table(table, tmp_path / "rows.parquet")
    with pa.ipc.new_file(str(tmp_path / "rows.arrow"), table.schema) as writer:
        writer.write_table(table)
    data = datasets.Dataset.from_list(ROWS)
    data.save_to_disk(str(tmp_path / "saved"))
    datasets.DatasetDict({"train": data, "test": data}).save_to_disk(str(tmp_path / "splits"))
    return tmp_path


@pytest.mark.parametrize("name", [*FILES, "saved", "splits"])
def test_all_kinds_of_local_source_give_the_same_rows(sources: Path, name: str) -> None:
    assert Source(name, [sources]).load() == ROWS
    assert Source(str(sources / name), []).load() == ROWS
    assert Source(name, [sources]).load(2) == ROWS[:2]


@pytest.mark.parametrize("name", FILES)
def test_a_url_is_read_through_fsspec(sources: Path, name: str) -> None:
    fsspec.filesystem("memory").pipe(f"/bucket/{name}", (sources / name).read_bytes())
    assert Source(f"memory://bucket/{name}", []).load() == ROWS
    assert Source(f"memory://bucket/{name}", []).load(1) == ROWS[:1]


def test_a_pattern_and_a_folder_behind_a_url(tmp_path: Path) -> None:
    for name in ("1.jsonl", "2.jsonl"):
        (tmp_path / name).write_text(json.dumps({"text": name}) + "\n")
        fsspec.filesystem("memory").pipe(f"/several/{name}", (tmp_path / name).read_bytes())
    both = [{"text": "1.jsonl"}, {"text": "2.jsonl"}]
    assert Source("*.jsonl", [tmp_path]).load() == both
    assert Source("memory://several", []).load() == both
    assert Source("memory://several/*.jsonl", []).load() == both


def test_an_empty_value_of_a_csv_is_a_missing_one_but_for_hooks(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("prompt,completion\na,\n")
    assert Source("rows.csv", [tmp_path]).load() == [{"prompt": "a", "completion": ""}]
    rows = Source("rows.csv", [tmp_path]).load(nulls=True)
    assert rows == [{"prompt": "a", "completion": None}]


@pytest.mark.parametrize(
    ("name", "content", "fragments"),
    [
        ("absent.jsonl", None, ["absent.jsonl", "does not exist"]),
        ("empty.jsonl", "", ["has no rows"]),
        ("broken.jsonl", '{"a": 1}\n{"a": \n', ["row 2", "not valid JSON"]),
        ("list.jsonl", "[1, 2]\n", ["row 1", "list"]),
        ("bad.parquet", "not parquet", ["cannot be read as Parquet"]),
        ("rows.xlsx", "a,b\n", [".xlsx"]),
        ("rows.csv", "a,b\n", ["has no rows"]),
        ("memory://none/rows.jsonl", None, ["cannot be read"]),
        ("nosuch://x/rows.jsonl", None, ["nosuch://x/rows.jsonl", "cannot be opened"]),
        ("some/hub-dataset", None, ["cannot be loaded from the hub"]),
    ],
)
def test_a_broken_source_says_what_is_wrong(
    tmp_path: Path, name: str, content: str | None, fragments: list[str]
) -> None:
    if content is not None:
        (tmp_path / name).write_text(content)
    with pytest.raises(LLMOpsError) as caught:
        Source(name, [tmp_path]).load()
    assert all(fragment in caught.value.message for fragment in fragments), caught.value.message
    assert caught.value.remedy


def test_a_missing_split_names_those_there_are(sources: Path) -> None:
    with pytest.raises(DataError, match="no split 'validation'") as caught:
        Source("splits", [sources], "validation").load()
    assert "train, test" in caught.value.remedy


def test_broken_rows_are_left_out_and_named_where_that_is_wanted(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"a": 1}\n{\n\n[2]\n{"a": 3}\n')
    broken: list[str] = []
    assert Source("rows.jsonl", [tmp_path]).load(broken=broken) == [{"a": 1}, {"a": 3}]
    assert [text.partition(":")[0] for text in broken] == ["rows.jsonl, row 2", "rows.jsonl, row 4"]
    texts = pa.array([b"one", b"\xff", b"three"]).view(pa.string())
    pq.write_table(pa.table({"text": texts}), tmp_path / "rows.parquet")
    broken = []
    found = Source("rows.parquet", [tmp_path]).load(broken=broken)
    assert (found, len(broken)) == ([{"text": "one"}, {"text": "three"}], 1)
    assert "rows.parquet, row 2: text that is not UTF-8" in broken[0]
    with pytest.raises(DataError, match="row 2: text that is not UTF-8"):
        Source("rows.parquet", [tmp_path]).load()
