"""Training rows of all formats of tables, of patterns and of folders behind a URL."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pytest

from llmops_kernel.errors import DataError
from llmops_kernel.train.data.sources import Source

ROWS = [{"prompt": "soup", "completion": "1"}, {"prompt": "pie, ü", "completion": "2"}]


def _write(folder: Path, rows: list[dict[str, Any]] = ROWS) -> None:
    folder.mkdir(exist_ok=True)
    lines = [f"{row['prompt']!r},{row['completion']}".replace("'", '"') for row in rows]
    (folder / "rows.csv").write_text("\n".join(["prompt,completion", *lines]))
    (folder / "rows.tsv").write_text(
        "\n".join("\t".join(row) for row in [ROWS[0].keys(), *(row.values() for row in rows)])
    )
    (folder / "rows.json").write_text(json.dumps(rows, indent=1))
    (folder / "rows.ndjson").write_text("".join(json.dumps(row) + "\n" for row in rows))
    table = pa.Table.from_pylist(rows)
    with pa.ipc.new_file(str(folder / "rows.arrow"), table.schema) as writer:
        writer.write_table(table)


@pytest.mark.parametrize("ending", ["csv", "tsv", "json", "ndjson", "arrow"])
def test_rows_of_other_formats(tmp_path: Path, ending: str) -> None:
    _write(tmp_path)
    assert Source(f"rows.{ending}", [tmp_path]).load() == ROWS
    memory = fsspec.filesystem("memory")
    memory.pipe(f"/formats/rows.{ending}", (tmp_path / f"rows.{ending}").read_bytes())
    assert Source(f"memory://formats/rows.{ending}", []).load(1) == ROWS[:1]


def test_lines_of_a_plain_text(tmp_path: Path) -> None:
    (tmp_path / "rows.txt").write_text("one\n\ntwo\n")
    assert Source("rows.txt", [tmp_path]).load() == [{"text": "one"}, {"text": "two"}]


def test_a_pattern_and_a_folder_behind_a_url(tmp_path: Path) -> None:
    for name in ("1.jsonl", "2.jsonl"):
        (tmp_path / name).write_text(json.dumps({"text": name}) + "\n")
        fsspec.filesystem("memory").pipe(f"/several/{name}", (tmp_path / name).read_bytes())
    both = [{"text": "1.jsonl"}, {"text": "2.jsonl"}]
    assert Source("*.jsonl", [tmp_path]).load() == both
    assert Source("memory://several", []).load() == both
    assert Source("memory://several/*.jsonl", []).load() == both


def test_a_broken_row_is_named_or_skipped(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("text,n\none,1\ntwo\nthree,3\n")
    with pytest.raises(DataError, match=r"row 2 has 1 values.*rows\.csv, line 3"):
        Source("rows.csv", [tmp_path]).load()
    broken: list[str] = []
    rows = Source("rows.csv", [tmp_path]).load(broken=broken)
    assert [row["text"] for row in rows] == ["one", "three"]
    assert len(broken) == 1


def test_an_empty_value_of_a_csv_is_a_missing_one_but_for_hooks(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("prompt,completion\na,\n")
    assert Source("rows.csv", [tmp_path]).load() == [{"prompt": "a", "completion": ""}]
    rows = Source("rows.csv", [tmp_path]).load(nulls=True)
    assert rows == [{"prompt": "a", "completion": None}]
