from __future__ import annotations

import csv

import pyarrow.parquet as pq
import pytest

from llmops_kernel.errors import QueryError, StoreError
from llmops_kernel.services.run_list import frame, write

VALUES = {
    "run": ["a-1", "a-2", "a-3"],
    "name, with comma": ["plain", "=HYPERLINK(1)", 'quote " and\nline'],
    "r": [8, "auto", None],
    "loss": [0.5, None, 1],
    "starred": [True, False, None],
    "tags": [("best", "ü"), (), None],
    "broken": ["\udcff", None, "x"],
}


def test_csv_keeps_every_cell_and_no_formula(tmp_path):
    path = write(VALUES, tmp_path / "runs.csv")
    with path.open(newline="", encoding="utf-8") as file:
        head, *lines = csv.reader(file)
    assert head == list(VALUES)
    assert lines[0] == ["a-1", "plain", "8", "0.5", "true", "best, ü", "?"]
    assert lines[1] == ["a-2", "'=HYPERLINK(1)", "auto", "", "false", "", ""]
    assert lines[2][1] == 'quote " and\nline'


def test_parquet_keeps_types_and_mixed_columns_as_text(tmp_path):
    path = write(VALUES, tmp_path / "runs.parquet")
    table = pq.read_table(path).to_pydict()
    assert table["loss"] == [0.5, None, 1.0]
    assert table["r"] == ["8", "auto", None]
    assert table["starred"] == [True, False, None]
    assert table["tags"] == [["best", "ü"], [], None]
    assert table["broken"] == ["?", None, "x"]


def test_a_frame_has_a_row_a_run():
    made = frame(VALUES)
    assert list(made.index) == ["a-1", "a-2", "a-3"]
    assert made.loc["a-1", "loss"] == 0.5


def test_another_file_and_a_missing_folder_are_errors(tmp_path):
    with pytest.raises(QueryError, match="neither a CSV nor a Parquet"):
        write(VALUES, tmp_path / "runs.xlsx")
    with pytest.raises(StoreError, match="Cannot write"):
        write(VALUES, tmp_path / "missing" / "runs.csv")


def test_no_runs_are_an_empty_table(tmp_path):
    empty = {name: [] for name in VALUES}
    assert write(empty, tmp_path / "runs.csv").read_text().count("\n") == 1
    assert pq.read_table(write(empty, tmp_path / "runs.parquet")).num_rows == 0
