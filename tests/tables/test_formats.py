"""Each format gives the same rows, part by part, and names a broken one by its file and place."""

from __future__ import annotations

import csv
import io
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmops_kernel.errors import DataError
from llmops_kernel.tables.files import TableFile, table_files
from llmops_kernel.tables.formats import array, lines, separated
from llmops_kernel.tables.parts import TableRow
from llmops_kernel.tables.reading import divide, read_part
from tests.messages import missing

Rows = list[dict[str, Any]]


def _rows(path: Path, *, part_rows: int = 3, **options: Any) -> list[TableRow]:
    files = table_files(str(path), roots=[], **options)
    plan = divide(files, part_rows=part_rows)
    assert all(part.num_rows <= part_rows for part in plan.parts)
    rows = [row for part in plan.parts for row in read_part(part).rows]
    assert [row.number for row in rows] == list(range(plan.num_rows))
    return rows


def _values(path: Path, **options: Any) -> Rows:
    rows = _rows(path, **options)
    assert not [row.error for row in rows if row.error]
    return [row.values for row in rows]


def _csv(rows: Rows, *, delimiter: str = ",", end: str = "\r\n") -> bytes:
    out = io.StringIO(newline="")
    writer = csv.DictWriter(out, rows[0], delimiter=delimiter, lineterminator=end)
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue().encode()


def _ipc(rows: Rows, make: Callable[..., Any], *, batch: int = 4) -> bytes:
    table, out = pa.Table.from_pylist(rows), io.BytesIO()
    with make(out, table.schema) as writer:
        writer.write_table(table, max_chunksize=batch)
    return out.getvalue()


TEXTS: Rows = [{"text": f"dish {n}, with ü", "n": str(n)} for n in range(11)]
FILES: dict[str, Callable[[Rows], bytes]] = {
    "a.jsonl": lambda rows: b"".join(json.dumps(row).encode() + b"\n" for row in rows),
    "lines.json": lambda rows: b"".join(json.dumps(row).encode() + b"\n\n" for row in rows),
    "list.json": lambda rows: json.dumps(rows).encode(),
    "pretty.json": lambda rows: b"\xef\xbb\xbf" + json.dumps(rows, indent=2).encode(),
    "a.csv": _csv,
    "bom.csv": lambda rows: b"\xef\xbb\xbf" + _csv(rows, end="\n"),
    "a.tsv": lambda rows: _csv(rows, delimiter="\t"),
    "file.arrow": lambda rows: _ipc(rows, pa.ipc.new_file),
    "stream.arrow": lambda rows: _ipc(rows, pa.ipc.new_stream),
}


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("part_rows", [1, 3, 100])
def test_all_formats_give_the_same_rows(tmp_path: Path, name: str, part_rows: int) -> None:
    (tmp_path / name).write_bytes(FILES[name](TEXTS))
    assert _values(tmp_path / name, part_rows=part_rows) == TEXTS


def test_a_text_has_a_row_in_each_line(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes("one\r\n\ntwo ü\nthree".encode())
    assert _values(tmp_path) == [{"text": "one"}, {"text": "two ü"}, {"text": "three"}]


def test_a_text_beside_tables_is_not_one(tmp_path: Path) -> None:
    (tmp_path / "README.txt").write_text("these are dishes\n")
    (tmp_path / "a.csv").write_bytes(_csv(TEXTS))
    assert _values(tmp_path) == TEXTS


_CELLS = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=12)


@settings(deadline=None)
@given(
    st.lists(st.fixed_dictionaries({"a": _CELLS, "b": _CELLS}), min_size=1, max_size=12),
    st.integers(1, 5),
    st.sampled_from(["a.csv", "list.json", "pretty.json", "a.tsv"]),
    st.integers(1, 40),
)
def test_any_text_comes_back_wherever_a_chunk_ends(
    rows: Rows, part_rows: int, name: str, chunk: int
) -> None:
    """Quotation marks, brackets, separators and line ends in values; chunks of a few bytes."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(FILES[name](rows))
        (file,) = table_files(str(path), roots=[])
        pieces = (array if file.format == "json" else separated).pieces
        whole = list(pieces(file, part_rows))
        assert list(pieces(file, part_rows, chunk_bytes=chunk)) == whole
        assert _values(path, part_rows=part_rows) == rows


def test_a_folder_that_datasets_saved_is_read_without_its_notes(tmp_path: Path) -> None:
    import datasets

    data = datasets.Dataset.from_list(TEXTS)
    data.save_to_disk(str(tmp_path / "saved"), num_shards=3)
    assert _values(tmp_path / "saved") == TEXTS


def test_a_split_of_a_saved_folder_is_named(tmp_path: Path) -> None:
    import datasets

    data = datasets.Dataset.from_list(TEXTS)
    splits = {"train": data, "test": data.select(range(2))}
    datasets.DatasetDict(splits).save_to_disk(str(tmp_path / "saved"))
    with pytest.raises(DataError, match="splits test, train") as raised:
        _values(tmp_path / "saved")
    assert "saved/test" in raised.value.remedy
    assert _values(tmp_path / "saved", split="test") == TEXTS[:2]
    assert _values(tmp_path / "saved" / "test") == TEXTS[:2]


def test_a_file_of_another_name_is_read_as_the_format_says(tmp_path: Path) -> None:
    (tmp_path / "rows.data").write_bytes(_csv(TEXTS))
    assert _values(tmp_path / "rows.data", format_name="csv") == TEXTS


@pytest.mark.parametrize(
    ("name", "data", "error"),
    [
        ("a.jsonl", b'{"a": 0}\n\n{"a": 1\n{"a": 2}\n', "row 1 is not JSON (a.jsonl, line 3)"),
        ("a.txt", b"one\n\n\xff\xfe\nthree\n", "row 1 is not UTF-8 (a.txt, line 3)"),
        ("a.json", b'[\n{"a": 0},\n{"a": x},\n{"a": 2}]', "row 1 is not JSON (a.json, line 3)"),
        ("a.json", b'[{"a": 0}, 17, {"a": 2}]', "row 1 is a JSON int (a.json, line 1)"),
        ("a.csv", b'a,b\n0,"x\ny"\n1\n2,z\n', "row 1 has 1 values, header 2 (a.csv, line 4)"),
        ("a.csv", b"a,b\n0,x\n1,\xff\n2,z\n", "row 1 is not UTF-8 (a.csv, line 3)"),
    ],
)
@pytest.mark.parametrize("part_rows", [1, 2, 10])
def test_a_broken_row_is_named_and_breaks_no_other(
    tmp_path: Path, name: str, data: bytes, error: str, part_rows: int
) -> None:
    (tmp_path / name).write_bytes(data)
    first, broken, last = _rows(tmp_path / name, part_rows=part_rows)
    assert (first.error, last.error) == ("", "")
    assert all(word in broken.error for word in error.split()), broken.error
    assert broken.error.endswith(error[error.index("(") :])
    assert broken.raw


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("a.json", b'[{"a": 0}, {"a": [1}, {"a": 2}]', r"a\.json, row 1: the list does not end"),
        ("a.json", b'[{"a": 0}, {"a": "x}]', r"a\.json, row 1: the list does not end"),
        ("a.csv", b'a,b\n0,"x\n1,y\n', r"a\.csv cannot be read as CSV, up to line 3"),
        ("a.csv", b'a,b\n0,"x"y\n1,y\n', r"a\.csv cannot be read as CSV, up to line 2"),
        ("a.arrow", b"no Arrow at all", r"a\.arrow cannot be read"),
    ],
)
def test_what_breaks_the_rows_after_it_is_an_error_of_the_file(
    tmp_path: Path, name: str, data: bytes, message: str
) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(DataError, match=message) as raised:
        _rows(tmp_path / name)
    assert raised.value.remedy


def _large_parquet(path: Path, *, groups: int, rows: int, broken: int) -> TableFile:
    """Write a file in which the text of row `broken` is not UTF-8."""
    texts = [b"a dish"] * (groups * rows)
    texts[broken] = b"\xff\xfe"
    column = pa.array(texts, pa.binary())
    bad = pa.Array.from_buffers(pa.string(), len(texts), column.buffers())
    pq.write_table(pa.table({"text": bad}), path, row_group_size=rows)
    return table_files(str(path), roots=[])[0]


def test_a_broken_row_in_row_group_900_is_named(tmp_path: Path) -> None:
    file = _large_parquet(tmp_path / "menus.parquet", groups=1000, rows=8, broken=900 * 8 + 5)
    plan = divide([file], part_rows=100)
    rows = [row for part in plan.parts for row in read_part(part).rows]
    broken = [row for row in rows if row.error]
    assert len(rows) == 8000
    (row,) = broken
    where = "menus.parquet, row group 900, row 5 in it"
    assert missing(row.error, "row 7205: text", "UTF-8", where) == []


def test_a_row_group_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    path = tmp_path / "menus.parquet"
    table = pa.table({"n": list(range(80))})
    pq.write_table(table, path, row_group_size=8, compression="gzip", use_dictionary=False)
    metadata = pq.read_metadata(path)
    start = metadata.row_group(6).column(0).data_page_offset
    data = bytearray(path.read_bytes())
    data[start : start + 20] = b"\xff" * 20
    path.write_bytes(data)
    plan = divide(table_files(str(path), roots=[]), part_rows=20)
    assert [row.values["n"] for row in read_part(plan.parts[0]).rows] == list(range(20))
    with pytest.raises(DataError, match=r"menus\.parquet, row group 6 \(rows 48 to 55\)"):
        read_part(plan.parts[2])


def test_a_broken_line_far_into_a_large_file_is_named(tmp_path: Path) -> None:
    """Beyond the first chunk, with empty lines before it."""
    path = tmp_path / "menus.jsonl"
    count = 2 * lines.CHUNK_BYTES // 50
    line = json.dumps({"text": "a dish of the day, and another one"}).encode() + b"\n"
    path.write_bytes(line * count + b"\n\n" + b'{"text": \n' + line * 3)
    rows = _rows(path, part_rows=10_000)
    assert len(rows) == count + 4
    (broken,) = [row for row in rows if row.error]
    assert broken.number == count
    assert broken.error.endswith(f"(menus.jsonl, line {count + 3:,})")
