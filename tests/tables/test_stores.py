"""Training rows, tables that are scored and what is written, in real servers of three stores."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from llmops_kernel.errors import DataError
from llmops_kernel.score.sink import Sink
from llmops_kernel.tables.files import open_url, table_files
from llmops_kernel.tables.reading import divide, read_part
from llmops_kernel.tables.stores import arrow_store, azure_options
from llmops_kernel.train.data.sources import Source
from llmops_kernel.train.data.stream.plan import plan_stream
from llmops_kernel.train.data.stream.walk import Walk
from tests.tables.servers import start
from tests.tables.servers.running import SERVERS, store

__all__ = ["store"]
ROWS = [{"n": n, "text": f"dish {n}"} for n in range(50)]


@pytest.fixture(scope="session", params=SERVERS)
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[start.Store]:
    with SERVERS[request.param](tmp_path_factory.mktemp(request.param)) as store:
        store.put("rows/a.jsonl", b"".join(json.dumps(row).encode() + b"\n" for row in ROWS[:20]))
        store.put("rows/deep/b.parquet", _parquet(ROWS[20:]))
        store.put("rows/_SUCCESS", b"")
        yield store


def _parquet(rows: list[dict[str, Any]]) -> bytes:
    buffer = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows), buffer, row_group_size=7)
    return buffer.getvalue()


def test_a_table_is_read_part_by_part(store: start.Store) -> None:
    files = table_files(f"{store.scheme}://bucket/rows", roots=[])
    assert [file.name for file in files] == ["a.jsonl", "deep/b.parquet"]
    assert [file.url for file in files] == [
        f"{store.scheme}://bucket/rows/{name}" for name in ("a.jsonl", "deep/b.parquet")
    ]
    plan = divide(files, part_rows=8)
    rows = [row for part in plan.parts for row in read_part(part).rows]
    assert [row.values for row in rows] == ROWS
    assert len(plan.parts) == 7


def test_a_pattern_names_objects(store: start.Store) -> None:
    (file,) = table_files(f"{store.scheme}://bucket/rows/*.jsonl", roots=[])
    assert file.name == "a.jsonl"


def test_training_rows_are_read(store: start.Store) -> None:
    for name, wanted in (("a.jsonl", ROWS[:20]), ("deep/b.parquet", ROWS[20:])):
        assert Source(f"{store.scheme}://bucket/rows/{name}", []).load() == wanted


def test_two_workers_stream_each_row_once_an_epoch(store: start.Store) -> None:
    plan = plan_stream(Source(f"{store.scheme}://bucket/rows", []))
    walks = [Walk(plan, rank, 2, seed=1, num_epochs=2) for rank in range(2)]
    found = [[row.decode()["n"] for row in walk.rows()] for walk in walks]
    assert sorted(found[0] + found[1]) == sorted([*range(50), *range(50)])
    assert min(map(len, found)) > 20
    again = Walk(plan, 1, 2, seed=1, num_epochs=2)
    assert [row.decode()["n"] for row in again.rows(17)] == found[1][17:]


def test_a_range_of_bytes_is_read_from_the_beginning_and_from_the_middle(
    store: start.Store,
) -> None:
    files, path = open_url(store.put("bytes.txt", b"0123456789"))
    assert files.cat_file(path, start=0, end=4) == b"0123"
    assert files.cat_file(path, start=3, end=6) == b"345"
    assert files.cat_file(path) == b"0123456789"


def test_the_version_changes_with_the_object(store: start.Store) -> None:
    url = store.put("changing.jsonl", b'{"a": 1}\n')
    before = table_files(url, roots=[])[0].version
    store.put("changing.jsonl", b'{"a": 12}\n')
    assert table_files(url, roots=[])[0].version != before


def test_what_is_missing_is_named(store: start.Store) -> None:
    with pytest.raises(DataError, match=r"nothing-here\.jsonl"):
        table_files(f"{store.scheme}://bucket/nothing-here.jsonl", roots=[])


def test_scored_rows_are_written_and_read_again(store: start.Store) -> None:
    sink = Sink(f"{store.scheme}://bucket/scored")
    sink.prepare()
    assert sink.parts() == {}
    sink.append_ledger("0001", [{"index": 0}])
    size = sink.write_table(0, pa.table({"a": [1, 2]}))
    assert sink.parts() == {"part-00000000.parquet": size}
    assert (sink.ledger(), sink.read("absent")) == ([{"index": 0}], None)
    assert Source(f"{store.scheme}://bucket/scored/part-00000000.parquet", []).load() == [
        {"a": 1},
        {"a": 2},
    ]


# moto and the emulator of Google's store accept every credential.
@pytest.mark.parametrize("server", ["azure"], indirect=True)
def test_wrong_credentials_are_an_error_with_the_url(
    server: start.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection = server.env["AZURE_STORAGE_CONNECTION_STRING"]
    monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", connection.replace("Eby8", "AAAA"))
    with pytest.raises(DataError, match="az://bucket/rows") as raised:
        table_files("az://bucket/rows", roots=[])
    assert "credentials" in raised.value.remedy
    assert "AAAA" not in raised.value.message


@pytest.mark.parametrize(
    ("server", "env", "options"),
    [
        ("", {"AZURE_STORAGE_ACCOUNT_NAME": "menus"}, {"account_name": "menus"}),
        (
            "dishes.dfs.core.windows.net",
            {"AZURE_STORAGE_ACCOUNT_NAME": "menus", "AZURE_STORAGE_KEY": "k"},
            {"account_name": "dishes", "account_key": "k"},
        ),
        (
            "",
            {"AZURE_STORAGE_ACCOUNT": "menus", "AZURE_STORAGE_SAS_TOKEN": "sv=1"},
            {"account_name": "menus", "sas_token": "sv=1"},
        ),
    ],
)
def test_azure_is_opened_by_the_names_of_its_own_tools(
    server: str, env: dict[str, str], options: dict[str, str]
) -> None:
    assert azure_options(server, env) == options


def test_the_account_of_an_azure_url_stays_in_the_urls_of_its_files() -> None:
    url = "abfss://menus@dishes.dfs.core.windows.net/train"
    files, path = arrow_store(url, {"AZURE_STORAGE_ACCOUNT_KEY": "a2V5"})
    assert path == "menus/train"
    assert files.url_of("menus/train/a.jsonl") == f"{url}/a.jsonl"


def test_azure_without_an_account_says_what_to_set() -> None:
    with pytest.raises(DataError, match="AZURE_STORAGE_ACCOUNT_NAME"):
        arrow_store("az://menus/train", {})


def test_hdfs_without_a_client_says_what_to_install(tmp_path: Path) -> None:
    env = {"HADOOP_HOME": str(tmp_path), "CLASSPATH": str(tmp_path)}
    with pytest.raises(DataError, match="hdfs://menus:8020/train") as raised:
        arrow_store("hdfs://menus:8020/train", env)
    assert "Hadoop client" in raised.value.remedy
