"""Lines of large CSV, text and JSON files: where they are from, and what is read for them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from llmops_kernel.errors import DataError
from llmops_kernel.train.data.preview.look import RowRequest, Sample
from llmops_kernel.train.data.preview.sample import WHOLE_BYTES, line_at, place_of, sample
from llmops_kernel.train.data.sources import Source

COUNT = 9000
BODY = "x" * 2000


def write(path: Path, rows: list[str]) -> Path:
    path.write_text("\n".join(rows) + "\n")
    assert path.stat().st_size > WHOLE_BYTES
    return path


def read(path: Path, count: int = 300, broken: list[str] | None = None) -> Sample:
    wanted = RowRequest(Source(path.name, (path.parent,)), None, broken=broken)
    return sample(wanted, count=count, seed=1)


def csv_rows() -> list[str]:
    return ["prompt,completion", *(f'{n},"{n}, {BODY}"' for n in range(1, COUNT + 1))]


def are_from_all_over(found: Sample, numbers: list[int]) -> None:
    assert found.where == "from all over the file"
    assert found.is_estimate
    assert found.total == pytest.approx(COUNT, rel=0.01)
    assert numbers == sorted(set(numbers))
    assert len(numbers) > 290
    assert {number * 10 // (COUNT + 1) for number in numbers} == set(range(10))


def test_rows_of_a_large_csv_come_from_all_over_it(tmp_path: Path) -> None:
    found = read(write(tmp_path / "a.csv", csv_rows()))
    are_from_all_over(found, [int(one.row["prompt"]) for one in found.rows])
    assert {one.row["completion"][-2010:].partition(", ")[2] for one in found.rows} == {BODY}
    for one in found.rows[:5]:
        assert one.find_number is not None
        assert one.find_number() == int(one.row["prompt"])


def test_rows_of_a_large_text_come_from_all_over_it(tmp_path: Path) -> None:
    rows = [line for n in range(1, COUNT + 1) for line in (f"{n} {BODY}", "")]
    found = read(write(tmp_path / "a.txt", rows))
    numbers = [int(one.row["text"].split()[0]) for one in found.rows]
    assert found.where == "from all over the file"
    assert max(numbers) > 8900
    for one, number in list(zip(found.rows, numbers, strict=True))[:5]:
        assert one.find_number is not None
        assert one.find_number() == number


def test_of_a_csv_whose_values_have_lines_the_first_rows_are_read(tmp_path: Path) -> None:
    rows = ["prompt,completion", *(f'{n},"{n}\n{BODY}"' for n in range(1, COUNT + 1))]
    found = read(write(tmp_path / "a.csv", rows))
    assert (found.total, found.where) == (None, "the first rows")
    assert [one.row["prompt"] for one in found.rows] == [str(n) for n in range(1, 301)]


def test_a_broken_row_of_a_large_csv_is_named(tmp_path: Path) -> None:
    rows = [f'{n},"{"x" * 500_000}"' for n in range(1, 41)]
    rows[26] = f"27,{'x' * 400_000},one too many"
    path = write(tmp_path / "a.csv", ["prompt,completion", *rows])
    with pytest.raises(DataError, match=r"row 27 has 3 values, and the header 2 .*line 28") as seen:
        read(path)
    assert "on_error=skip" in seen.value.remedy
    broken: list[str] = []
    found = read(path, broken=broken)
    assert len(found.rows) == 39
    assert len(broken) == 1
    assert "at byte 13," in broken[0]


def test_only_the_beginning_of_a_json_list_is_read(tmp_path: Path) -> None:
    rows = ",".join(json.dumps({"text": f"{n} {BODY}"}) for n in range(1, COUNT + 1))
    path = write(tmp_path / "a.json", [f"[{rows}, this is not JSON, and the list does not end"])
    found = read(path, count=20)
    assert (found.total, found.where) == (None, "the first rows")
    assert [one.number for one in found.rows] == list(range(1, 21))


def test_a_file_without_line_ends_is_refused_before_all_of_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    with path.open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(DataError, match=r"a\.jsonl has a line of more than 64 MiB") as seen:
        read(path)
    assert "a line of its own" in seen.value.remedy


def test_a_row_far_from_the_beginning_is_named_by_its_byte(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("{}\n{}\n")
    assert place_of(tmp_path / "a.jsonl", 3, line_at) == 2
    assert place_of(tmp_path / "a.jsonl", 2 << 30, line_at) == "at byte 2,147,483,648"
