"""Which rows of a source are read, and what is known about the others."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from llmops_kernel.config.models.sections import DataConfig
from llmops_kernel.errors import DataError
from llmops_kernel.train.data.preview.look import RowReader, RowRequest, spread
from llmops_kernel.train.data.preview.sample import WHOLE_BYTES, row_at, sample
from llmops_kernel.train.data.sources import Source
from llmops_kernel.train.hooks import Hooks

BODY = "x" * 2000


def wanted(folder: Path, name: str, limit: int | None = None) -> RowRequest:
    return RowRequest(Source(name, (folder,)), limit)


def write(path: Path, count: int, body: str = BODY) -> None:
    """Write rows that know their number."""
    lines = (json.dumps({"text": f"{number} {body}"}) for number in range(1, count + 1))
    path.write_text("\n".join(lines) + "\n")


def own_number(row: dict[str, str]) -> int:
    return int(row["text"].split()[0])


def test_a_small_file_is_read_whole(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", 30, "short")
    found = sample(wanted(tmp_path, "a.jsonl"), count=10, seed=1)
    assert (found.total, found.is_estimate, found.where) == (30, False, "")
    assert [one.number for one in found.rows] == list(range(1, 31))
    assert [own_number(one.row) for one in found.rows] == list(range(1, 31))


def test_only_the_rows_that_the_run_uses_are_read(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", 30, "short")
    found = sample(wanted(tmp_path, "a.jsonl", limit=12), count=10, seed=1)
    assert (found.total, len(found.rows)) == (12, 12)


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("large")
    write(folder / "a.jsonl", 9000)
    assert (folder / "a.jsonl").stat().st_size > WHOLE_BYTES
    return folder


def test_lines_of_a_large_file_come_from_all_over_it(large: Path) -> None:
    found = sample(wanted(large, "a.jsonl"), count=300, seed=1)
    numbers = [own_number(one.row) for one in found.rows]
    assert numbers == sorted(set(numbers))
    assert len(numbers) > 290
    assert {number * 10 // 9001 for number in numbers} == set(range(10))
    assert found.is_estimate
    assert found.total == pytest.approx(9000, rel=0.01)
    again = sample(wanted(large, "a.jsonl"), count=300, seed=1)
    assert [one.row for one in again.rows] == [one.row for one in found.rows]
    other = sample(wanted(large, "a.jsonl"), count=300, seed=2)
    assert [one.row for one in other.rows] != [one.row for one in found.rows]


def test_the_number_of_a_sampled_line_can_be_found(large: Path) -> None:
    found = sample(wanted(large, "a.jsonl"), count=20, seed=1)
    assert [one.number for one in found.rows[:2]] == [1, None]
    for one in found.rows[1:]:
        assert one.find_number is not None
        assert one.find_number() == own_number(one.row)


def test_a_limit_of_a_large_file_is_kept(large: Path) -> None:
    few = sample(wanted(large, "a.jsonl", limit=400), count=100, seed=1)
    assert (few.total, len(few.rows), few.is_estimate) == (400, 400, False)


@pytest.mark.parametrize("line", ['{"text": "cut off', "[1, 2]", '{"text": 3}'])
def test_a_broken_row_of_a_large_file_is_named_by_its_number(tmp_path: Path, line: str) -> None:
    rows = [json.dumps({"text": f"{n} {'x' * 500_000}"}) for n in range(1, 41)]
    rows[26] = line
    (tmp_path / "a.jsonl").write_text("\n".join(rows) + "\n")
    with pytest.raises(DataError, match=r"a\.jsonl.*[Rr]ow 27\b"):
        read_all(wanted(tmp_path, "a.jsonl"))


def read_all(source: RowRequest) -> None:
    data = DataConfig(train=source.source.name)
    reader = RowReader(source.source.name, data=data, hooks=Hooks(), tokenizer=None)
    for one in sample(source, count=400, seed=1).rows:
        reader.format(one)


def test_rows_of_a_large_parquet_file_come_from_several_row_groups(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.table({"text": [f"{number} x" for number in range(1, 60_001)]})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=2000)
    found = sample(wanted(tmp_path, "a.parquet"), count=160, seed=1)
    assert (found.total, found.is_estimate, len(found.rows)) == (60_000, False, 160)
    assert found.where == "the first rows of 16 of 30 row groups"
    assert [own_number(one.row) for one in found.rows] == [one.number for one in found.rows]
    assert max(one.number or 0 for one in found.rows) > 50_000
    fewer = sample(wanted(tmp_path, "a.parquet", limit=55_000), count=160, seed=1)
    assert fewer.total == 55_000
    assert max(one.number or 0 for one in fewer.rows) <= 55_000


def test_of_a_small_parquet_file_all_rows_are_read(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"text": ["1 a", "2 b"]}), tmp_path / "a.parquet")
    found = sample(wanted(tmp_path, "a.parquet"), count=1, seed=1)
    assert (found.total, len(found.rows)) == (2, 2)
    (tmp_path / "b.parquet").write_bytes(b"no parquet")
    with pytest.raises(DataError, match=r"b\.parquet"):
        sample(wanted(tmp_path, "b.parquet"), count=1, seed=1)


def test_of_a_url_the_first_rows_are_read(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", 30, "short")
    url = f"file://{tmp_path / 'a.jsonl'}"
    found = sample(RowRequest(Source(url, ()), None), count=10, seed=1)
    assert (found.total, found.where) == (None, "the first rows")
    assert [one.number for one in found.rows] == list(range(1, 11))
    whole = sample(RowRequest(Source(url, ()), None), count=30, seed=1)
    assert (whole.total, len(whole.rows), whole.where) == (30, 30, "")


def test_one_row_is_found_by_its_number(tmp_path: Path) -> None:
    write(tmp_path / "a.jsonl", 30, "short")
    assert own_number(row_at(wanted(tmp_path, "a.jsonl"), 17)) == 17
    with pytest.raises(DataError, match="has no row 31: the run uses 30") as caught:
        row_at(wanted(tmp_path, "a.jsonl"), 31)
    assert "from 1 to 30" in caught.value.remedy
    with pytest.raises(DataError, match="uses 20"):
        row_at(wanted(tmp_path, "a.jsonl", limit=20), 21)


@pytest.mark.parametrize(("size", "count"), [(10, 20), (1000, 7), (7, 7), (8, 7), (8, 0)])
def test_spread_indices_are_one_of_each_piece(size: int, count: int) -> None:
    found = spread(size, count, 3)
    assert len(found) == min(size, count)
    assert found == sorted(set(found))
    assert all(0 <= index < size for index in found)


def test_of_a_wide_parquet_file_only_the_columns_of_a_row_are_read(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    numbers = range(60_000)
    pq.write_table(
        pa.table({"text": [f"{n} x" for n in numbers], "other": list(numbers)}),
        tmp_path / "a.parquet",
    )
    few = RowRequest(Source("a.parquet", (tmp_path,)), None, columns=lambda _: ["text"])
    assert sample(few, count=3, seed=1).rows[2].row == {"text": "2 x"}
    (tmp_path / "many").mkdir()
    for name in ("a.parquet", "b.parquet"):
        (tmp_path / "many" / name).write_bytes((tmp_path / "a.parquet").read_bytes())
    several = RowRequest(
        Source("many", (tmp_path,)), None, is_streamed=True, columns=lambda _: ["text"]
    )
    found = sample(several, count=4, seed=1)
    assert (found.total, found.is_estimate) == (120_000, False)
    assert found.where == "from all over 2 files"
    assert [one.row for one in found.rows] == [{"text": "0 x"}, {"text": "1 x"}] * 2
