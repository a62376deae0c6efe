"""What a question may be, what an error says, and how an answer is written."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import signal
import subprocess
import sys
import time

import pandas as pd
import pytest

import llmops_kernel as llmops
from llmops_kernel.errors import QueryError
from llmops_kernel.metrics.events import Event, PhaseEvent, StepEvent
from llmops_kernel.services.query.ask import answered
from llmops_kernel.services.query.tables import event_types, table_of, tables
from llmops_kernel.store.store import RunStore
from tests.cli.conftest import call
from tests.services.run_table.stores import add
from tests.waiting import until


@pytest.fixture
def store(home) -> RunStore:
    store = RunStore()
    add(store, "sft-1", loss=0.5, eval_loss=0.25)
    add(store, "sft-2", loss=math.nan)
    return store


def refusal(store: RunStore, sql: str, **options) -> QueryError:
    with pytest.raises(QueryError) as raised, answered(sql, store=store, **options) as (answer, _):
        list(answer.rows())
    return raised.value


def test_sql_of_a_user_only_reads(store, tmp_path):
    target = tmp_path / "out"
    refused = [
        f"COPY runs TO '{target}'",
        f"EXPLAIN ANALYZE COPY runs TO '{target}'",
        f"ATTACH '{target}'",
        "SELECT * FROM read_csv('/etc/passwd')",
        "SELECT * FROM read_text('/etc/passwd')",
        f"SELECT * FROM read_json('{store.root}/runs/*/record.json')",
        f"SELECT * FROM glob('{store.root}/*')",
        "SET enable_external_access = true",
        "PRAGMA disable_checkpoint_on_shutdown",
        "INSTALL httpfs",
        "DELETE FROM fresh.runs",
        "CREATE TABLE mine AS SELECT 1",
        "SELECT 1; SELECT 2",
        "",
    ]
    for sql in refused:
        assert refusal(store, sql).remedy
    assert not target.exists()
    with answered("SELECT count(*) FROM runs", store=store) as (answer, _):
        assert list(answer.rows()) == [(2,)]


def test_a_misspelt_name_brings_near_ones(store):
    wrong = refusal(store, "SELECT los FROM steps")
    assert "did you mean loss" in wrong.remedy
    assert wrong.position == 7
    assert "steps" in refusal(store, "SELECT * FROM stepz").remedy
    assert "loss" in refusal(store, "SELECT s.lost FROM steps AS s").remedy


def test_a_query_that_takes_too_long_is_stopped(store):
    endless = "SELECT count(*) FROM range(1000000000) a, range(1000000) b WHERE a.range < b.range"
    begun_s = time.monotonic()
    assert "0.3 s" in refusal(store, endless, timeout_s=0.3).message
    assert time.monotonic() - begun_s < 10


def test_ctrl_c_ends_the_command(store):
    endless = "SELECT count(*) FROM range(1000000000) a, range(1000000) b WHERE a.range < b.range"
    command = [sys.executable, "-m", "llmops_kernel", "query", endless]
    process = subprocess.Popen(command, env=os.environ, stderr=subprocess.PIPE)
    until(lambda: list(store.root.glob("query/*/manifest.json")))  # Its copy is there: it asks.
    process.send_signal(signal.SIGINT)
    assert "Interrupted" in process.communicate(timeout=20)[1].decode()
    assert process.returncode == 130


def test_a_frame_tells_unknown_from_nan(store):
    frame = llmops.query("SELECT run, loss, mfu, tokens, time FROM steps ORDER BY run")
    assert frame["run"].tolist() == ["sft-1", "sft-2"]
    assert frame["loss"][0] == 0.5
    assert math.isnan(frame["loss"][1])
    assert frame["tokens"][0] is pd.NA
    mixed = llmops.query("SELECT unnest([1.5::DOUBLE, 'NaN'::DOUBLE, NULL]) AS x")["x"]
    assert mixed[0] == 1.5
    assert mixed[2] is pd.NA
    assert mixed.isna().tolist() == [False, False, True] or math.isnan(mixed[1])
    named = llmops.query("SELECT loss FROM steps WHERE run = $run", {"run": "sft-1"})
    assert named["loss"].tolist() == [0.5]


def test_the_command_prints_csv_json_parquet_and_a_table(store, capsys, tmp_path):
    sql = "SELECT run, loss, mfu, [1, 2] AS list FROM steps ORDER BY run"
    assert call("query", sql, "--csv") == 0
    lines = list(csv.reader(io.StringIO(capsys.readouterr().out)))
    assert lines == [
        ["run", "loss", "mfu", "list"],
        ["sft-1", "0.5", "", "[1, 2]"],
        ["sft-2", "NaN", "", "[1, 2]"],
    ]
    assert call("query", sql, "--json") == 0
    assert json.loads(capsys.readouterr().out)[1] == {
        "run": "sft-2",
        "loss": "NaN",
        "mfu": None,
        "list": [1, 2],
    }
    for _ in range(2):  # The second one replaces the file.
        assert call("query", sql, "--parquet", str(tmp_path / "x.parquet")) == 0
    assert [path.name for path in tmp_path.glob("*parquet*")] == ["x.parquet"]
    capsys.readouterr()
    assert pd.read_parquet(tmp_path / "x.parquet")["run"].tolist() == ["sft-1", "sft-2"]
    assert call("query", sql, "--parquet", str(tmp_path / "none" / "x.parquet")) == 1
    assert "Cannot write" in capsys.readouterr().err
    assert call("query", sql, "--limit", "1") == 0
    printed = capsys.readouterr()
    assert "sft-1" in printed.out
    assert "sft-2" not in printed.out
    assert "1 more" in printed.err
    assert call("query", "SELECT 1 WHERE false", "--json") == 0
    assert json.loads(capsys.readouterr().out) == []


def test_wrong_usage_is_named(store, capsys):
    assert call("query") == 2
    assert call("query", "SELECT 1", "--csv", "--json") == 2
    capsys.readouterr()
    assert call("query", "SELECT los FROM steps") == 1
    assert "^" in capsys.readouterr().err
    assert call("query", "--tables", "nothing") == 1


def test_every_event_and_field_is_a_column():
    by_name = {table.name: table for table in tables(described=True)}
    for event in event_types():
        if event is PhaseEvent:
            continue
        columns = {column.field or column.name for column in by_name[table_of(event)].columns}
        assert set(event.model_fields) - {"kind", "stands_for"} <= columns
    texts = {column.name: column.about for column in by_name["steps"].columns}
    assert texts["host_memory_bytes"] == "Resident set of rank 0's process."
    assert texts["time"] == "time of the report, UTC"
    assert issubclass(StepEvent, Event)


def test_the_command_prints_the_tables(store, capsys):
    assert call("query", "--tables") == 0
    printed = capsys.readouterr().out
    for table in tables():
        assert table.name in printed


def test_no_column_needs_quotes(store):
    names = sorted({column.name for table in tables() for column in table.columns})
    query = "SELECT keyword_name FROM duckdb_keywords() WHERE keyword_category = 'reserved'"
    with answered(query, store=store) as (answer, _):
        reserved = {row[0] for row in answer.rows()}
    assert not reserved & set(names)
