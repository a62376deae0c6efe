"""Broken rows become rows with an error."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from llmops_kernel.errors import DataError
from llmops_kernel.tables.files import table_files
from llmops_kernel.tables.parts import TableRow
from llmops_kernel.tables.reading import divide, read_part
from tests.messages import missing


def _rows(path: Path) -> list[TableRow]:
    plan = divide(table_files(str(path), roots=[]), part_rows=100)
    return [row for part in plan.parts for row in read_part(part).rows]


@pytest.mark.parametrize(
    ("line", "error"),
    [
        (b'{"a": "\xff\xfe"}', "not UTF-8"),
        (b'{"a": 1', "not JSON"),
        (b"[1, 2]", "a JSON list, not an object"),
        (b'"text"', "a JSON str, not an object"),
        (b"[" * 100_000, "not JSON|nested too deeply"),
    ],
)
def test_a_broken_line_keeps_its_text(tmp_path: Path, line: bytes, error: str) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'{"a": 0}\n' + line + b'\n{"a": 2}\n')
    first, broken, last = _rows(path)
    assert (first.values, last.values) == ({"a": 0}, {"a": 2})
    assert any(word in broken.error for word in error.split("|"))
    assert "row 1" in broken.error
    assert broken.raw[:5] == line.decode(errors="replace")[:5]


def test_text_that_is_not_utf8_in_parquet_breaks_its_row_only(tmp_path: Path) -> None:
    texts = pa.array([b"good", b"\xff\xfe", b"fine"], pa.binary())
    column = pa.Array.from_buffers(pa.string(), 3, texts.buffers())
    pq.write_table(pa.table({"n": [0, 1, 2], "t": column}), tmp_path / "rows.parquet")
    first, broken, last = _rows(tmp_path / "rows.parquet")
    assert (first.values["t"], last.values["t"]) == ("good", "fine")
    assert broken.values == {"n": 1}
    where = "rows.parquet, row group 0, row 1 in it"
    assert missing(broken.error, "row 1: t", "UTF-8", where) == []


def test_a_file_that_is_gone_is_an_error_of_the_run(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"a": 1}\n')
    plan = divide(table_files(str(path), roots=[]), part_rows=10)
    path.unlink()
    with pytest.raises(DataError, match="cannot be read"):
        read_part(plan.parts[0])
