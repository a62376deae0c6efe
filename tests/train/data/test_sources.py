"""Every kind of source gives the same rows; every broken one says what is wrong with it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from llmops_kernel.errors import DataError, LLMOpsError
from llmops_kernel.train.data.sources import Source

ROWS = [{"text": "one"}, {"text": "two"}, {"text": "three"}]


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    import datasets
    import pyarrow as pa
    import pyarrow.parquet as pq

    lines = "\n".join(json.dumps(row) for row in ROWS)
    (tmp_path / "rows.jsonl").write_text(lines + "\n\n")
    pq.write_table(pa.Table.from_pylist(ROWS), tmp_path / "rows.parquet")
    data = datasets.Dataset.from_list(ROWS)
    data.save_to_disk(str(tmp_path / "saved"))
    datasets.DatasetDict({"train": data, "test": data}).save_to_disk(str(tmp_path / "splits"))
    return tmp_path


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.parquet", "saved", "splits"])
def test_all_kinds_of_local_source_give_the_same_rows(sources: Path, name: str) -> None:
    assert Source(name, [sources]).load() == ROWS
    assert Source(str(sources / name), []).load() == ROWS
    assert Source(name, [sources]).load(2) == ROWS[:2]


def test_a_url_is_read_through_fsspec(sources: Path) -> None:
    import fsspec

    memory = fsspec.filesystem("memory")
    memory.pipe("/bucket/rows.jsonl", (sources / "rows.jsonl").read_bytes())
    memory.pipe("/bucket/rows.parquet", (sources / "rows.parquet").read_bytes())
    assert Source("memory://bucket/rows.jsonl", []).load() == ROWS
    assert Source("memory://bucket/rows.parquet", []).load() == ROWS


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
    import pyarrow as pa
    import pyarrow.parquet as pq

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
