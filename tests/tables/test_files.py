"""Which files a table has."""

from __future__ import annotations

from pathlib import Path

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from llmops_kernel.errors import DataError, MissingDependencyError
from llmops_kernel.tables.files import table_files


def _write(folder: Path, *names: str) -> None:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if name.endswith(".parquet"):
            pq.write_table(pa.table({"a": [1]}), path)
        else:
            path.write_text('{"a": 1}\n')


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("one.jsonl", ["one.jsonl"]),
        ("folder", ["folder/a.parquet", "folder/b.jsonl", "folder/deep/c.parquet"]),
        ("folder/*.parquet", ["folder/a.parquet"]),
    ],
)
def test_a_file_a_folder_and_a_pattern(tmp_path: Path, path: str, found: list[str]) -> None:
    names = ("folder/a.parquet", "folder/b.jsonl", "folder/deep/c.parquet", "one.jsonl")
    _write(tmp_path, *names, "folder/_SUCCESS", "folder/_ledger/1.jsonl", "folder/.hidden.jsonl")
    files = table_files(path, roots=[tmp_path])
    assert [str(Path(file.url).relative_to(tmp_path)) for file in files] == found
    assert {file.format for file in files} <= {"parquet", "jsonl"}


def test_the_first_root_that_has_it_is_taken(tmp_path: Path) -> None:
    _write(tmp_path / "client", "a.jsonl")
    (tmp_path / "cluster").mkdir()
    (file,) = table_files("a.jsonl", roots=[tmp_path / "cluster", tmp_path / "client"])
    assert file.url == str(tmp_path / "client" / "a.jsonl")


def test_a_url_is_listed_with_its_scheme() -> None:
    memory = fsspec.filesystem("memory")
    memory.pipe_file("/files-test/x.jsonl", b'{"a": 1}\n')
    (file,) = table_files("memory://files-test", roots=[])
    assert (file.url, file.size_bytes) == ("memory://files-test/x.jsonl", 9)


def test_the_version_changes_with_the_file(tmp_path: Path) -> None:
    _write(tmp_path, "a.jsonl")
    before = table_files("a.jsonl", roots=[tmp_path])[0].version
    (tmp_path / "a.jsonl").write_text('{"a": 12}\n')
    assert table_files("a.jsonl", roots=[tmp_path])[0].version != before


def test_other_names_need_a_format(tmp_path: Path) -> None:
    (tmp_path / "rows.data").write_text('{"a": 1}\n')
    with pytest.raises(DataError, match=r"has no tables"):
        table_files("rows.data", roots=[tmp_path])
    (file,) = table_files("rows.data", roots=[tmp_path], format_name="jsonl")
    assert file.format == "jsonl"


def test_what_is_not_there_is_said_with_where_it_was_looked_for(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=str(tmp_path)):
        table_files("missing.jsonl", roots=[tmp_path])


def test_a_url_of_a_package_that_is_missing_names_it() -> None:
    with pytest.raises(MissingDependencyError) as raised:
        table_files("oss://bucket/rows.jsonl", roots=[])
    assert "ossfs" in raised.value.message
