"""The table of all runs over HTTP: windows, groups, errors, files, actions on many runs."""

from __future__ import annotations

import csv
import io
import json
import math
import time
from pathlib import Path
from typing import Any

import pytest

from llmops_kernel.metrics.events import QueueEvent, RestartEvent
from llmops_kernel.server.run_table import LiveTable
from llmops_kernel.server.runs.followers import Followers
from llmops_kernel.server.runs.rows import RunRows
from llmops_kernel.services.backend import Backend
from llmops_kernel.services.run_list import list_rows, newest
from llmops_kernel.services.run_table import labels_of
from llmops_kernel.store.journal.journal import JournalWriter
from llmops_kernel.store.store import RunStore
from llmops_kernel.views.run_query.query import Query
from tests.server.conftest import Fetch
from tests.services.run_table.stores import add


@pytest.fixture
def store(home: Path) -> RunStore:
    store = RunStore()
    for number, (rate, r) in enumerate([(2e-3, 8), (2e-3, 16), (5e-4, 16)]):
        config = {"optimizer": {"learning_rate": rate}, "method": {"r": r}}
        loss = 0.5 - number / 10
        add(store, f"menu-{number}", config=config, eval_loss=loss, created_s=float(number))
    add(store, "tags-1", config={"seed": 1}, state="FAILED", created_s=9.0)
    return store


async def ask(api: Fetch, path: str = "", *, status: int = 200, **body: Any) -> Any:
    until_s = time.monotonic() + 30
    while json.loads((await api("run-table", method="POST", body="{}")).body)["reading"]:
        assert time.monotonic() < until_s, "the table is still being read"
    answer = await api(f"run-table{path}", method="POST", body=json.dumps(body))
    assert answer.code == status, answer.body
    return json.loads(answer.body)


async def listed(api: Fetch, store: RunStore) -> list[Any]:
    """The side bar's rows, once all runs were read: a look at them has little time."""
    until_s = time.monotonic() + 30
    while len(rows := json.loads((await api("runs")).body)) < len(store.ids()):
        assert time.monotonic() < until_s, "runs are still being read"
    return list(rows)


def ids(answer: Any) -> list[str]:
    return [line["run"]["run_id"] for line in answer["lines"] if line["run"]]


async def test_the_table_shows_what_differs(store: RunStore, api: Fetch) -> None:
    answer = await ask(api, where="name == 'menu'")
    assert (answer["total"], answer["matched"]) == (4, 3)
    assert [line["run"]["label"] for line in answer["lines"]] == [
        "lr 5e-4 · r 16",
        "lr 2e-3 · r 16",
        "lr 2e-3 · r 8",
    ]
    columns = {column["name"]: column for column in answer["columns"]}
    assert columns["method.r"]["differs"]
    assert columns["method.r"]["type"] == "number"
    assert not columns["state"]["differs"]


async def test_windows_order_and_groups(store: RunStore, api: Fetch) -> None:
    answer = await ask(api, sort="eval_loss", first=1, count=2)
    assert (ids(answer), answer["num_lines"]) == (["menu-1", "menu-0"], 4)
    answer = await ask(api, group="method.r", sort="run")
    heads = [line["group"] for line in answer["lines"] if line["group"]]
    assert [(head["text"], head["count"]) for head in heads] == [
        ("method.r 8", 1),
        ("method.r 16", 2),
        ("method.r –", 1),
    ]
    answer = await ask(api, group="method.r", closed=[heads[1]["key"]], sort="run")
    assert ids(answer) == ["menu-0", "tags-1"]
    assert answer["num_lines"] == 5


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"where": "metod.r > 8"}, "'metod.r'"),
        ({"sort": "nothing"}, "'nothing'"),
        ({"columns": ["state", "q"]}, "'q'"),
        ({"group": "?"}, "'?'"),
        ({"colour_by": "colou"}, "'colou'"),
        ({"where": "__import__('os')"}, "cannot contain"),
        ({"count": 501}, "count"),
    ],
)
async def test_a_wrong_question_is_refused_with_a_remedy(
    store: RunStore, api: Fetch, body: Any, expected: str
) -> None:
    answer = await ask(api, status=422, **body)
    assert expected in answer["message"]


async def test_parallel_coordinates_place_each_run_on_each_axis(
    store: RunStore, api: Fetch
) -> None:
    answer = await ask(api, "/rays", where="name == 'menu'", sort="created")
    axes = [axis["name"] for axis in answer["axes"]]
    assert axes[:2] == ["optimizer.learning_rate", "method.r"]
    at = axes.index("method.r")
    assert [ray["at"][at] for ray in answer["rays"]] == [0.0, 1.0, 1.0]


async def test_axes_of_constants_are_left_out_and_learning_rates_are_logarithmic(
    store: RunStore, api: Fetch
) -> None:
    for number, rate in enumerate([1e-4, 3e-4, 1e-3]):
        config = {"optimizer": {"learning_rate": rate}}
        add(store, f"rate-{number}", config=config, loss=0.5, eval_loss=0.1 + number)
    answer = await ask(api, "/rays", where="name == 'rate'", sort="run")
    axes = {axis["name"]: axis for axis in answer["axes"]}
    assert "loss" not in axes
    assert axes["optimizer.learning_rate"]["is_log"]
    assert axes["optimizer.learning_rate"]["ends"] == ["1e-4", "1e-3"]
    assert axes["eval_loss"]["ends"] == ["0.1000", "2.1000"]
    at = list(axes).index("optimizer.learning_rate")
    assert answer["rays"][1]["at"][at] == pytest.approx(math.log(3) / math.log(10))
    chosen = await ask(api, "/rays", where="name == 'rate'", columns=["loss", "eval_loss"])
    assert [axis["name"] for axis in chosen["axes"]] == ["loss", "eval_loss"]


async def test_a_file_has_all_runs_though_none_has_been_read(store: RunStore, api: Fetch) -> None:
    lines = (await api("run-table/export?columns=state")).body.decode().splitlines()
    assert lines[1:] == ["tags-1,FAILED", *(f"menu-{n},SUCCEEDED" for n in (2, 1, 0))]


async def test_columns_and_files(store: RunStore, api: Fetch) -> None:
    await ask(api)
    answer = await api("run-table/columns")
    names = {column["name"] for column in json.loads(answer.body)["columns"]}
    assert names >= {"method.r", "eval_loss", "tags", "state"}
    query = "format=csv&columns=method.r,state&where=method.r%3E8"
    answer = await api(f"run-table/export?{query}")
    assert "runs.csv" in answer.headers["Content-Disposition"]
    assert list(csv.reader(io.StringIO(answer.body.decode()))) == [
        ["run", "method.r", "state"],
        ["menu-2", "16", "SUCCEEDED"],
        ["menu-1", "16", "SUCCEEDED"],
    ]
    assert (await api("run-table/export?format=parquet")).body[:4] == b"PAR1"
    assert (await api("run-table/export?format=xls")).code == 422


async def test_tags_colours_and_a_deletion_of_several_runs(store: RunStore, api: Fetch) -> None:
    both = ["menu-0", "menu-1"]
    await ask(api)
    await ask(api, "/tags", run_ids=both, add=["best"], colour="teal")
    answer = await ask(api, where="'best' in tags")
    assert sorted(ids(answer)) == both
    assert {line["run"]["colour"] for line in answer["lines"]} == {"teal"}
    await ask(api, "/tags", run_ids=both[:1], remove=["best"])
    assert ids(await ask(api, where="'best' in tags")) == both[1:]
    assert (await ask(api, "/ids", where="r > 1", sort="run"))["run_ids"] == [*both, "menu-2"]
    (store.folder("menu-0").checkpoints / "step-1").mkdir(parents=True)
    lost = await ask(api, "/losses", run_ids=[*both, "gone-1"])
    assert (lost["num_runs"], lost["num_checkpoints"], lost["missing"]) == (2, 1, ["gone-1"])
    await ask(api, "/delete", status=202, run_ids=both)
    until_s = time.monotonic() + 30
    while len(store.ids()) > 2 and time.monotonic() < until_s:
        await ask(api)
    assert ids(await ask(api, sort="run")) == ["menu-2", "tags-1"]


async def test_a_run_that_is_on_is_not_lost_with_the_others(store: RunStore, api: Fetch) -> None:
    writer = add(store, "menu-9", state=None)
    await ask(api)
    lost = await ask(api, "/losses", run_ids=["menu-9", "menu-0"])
    assert lost["not_ended"] == ["menu-9"]
    writer.close()


@pytest.mark.parametrize("followed", [False, True])
def test_the_reason_is_shown_while_a_run_waits_or_starts_again(
    store: RunStore, followed: bool
) -> None:
    for run_id in ("menu-8", "menu-9"):
        add(store, run_id, state=None).close()
    queue = QueueEvent(state="begin", reason="needs 2 CPUs", place=1, length=2)
    restart = RestartEvent(from_step=1, cause="worker rank 1 was killed", failures_left=2)
    for run_id, event in (("menu-8", queue), ("menu-9", restart)):
        writer = JournalWriter([store.folder(run_id).journal], stream="1-driver", attempt=1)
        writer.emit(event)
        writer.close()
    followers = Followers(Backend(store=store))
    rows = RunRows(store, followers)
    rows.open()
    if followed:
        rows.look()
    table = LiveTable(store, rows)
    until_s = time.monotonic() + 30
    table.refresh()
    while table.table.is_reading:  # A look ends after a part of a second.
        assert time.monotonic() < until_s
        table.refresh()
    found, _ = table.ask(Query(where="state in ['QUEUED', 'RESTARTING']"))
    rows.close()
    assert {row.run_id: row.get("reason") for row in found.rows} == {
        "menu-8": "Place 1 of 2 in the queue: needs 2 CPUs",
        "menu-9": "Restart 1 of 3, from the checkpoint of step 1: worker rank 1 was killed",
    }


async def test_the_side_bars_rows_say_what_differs(store: RunStore, api: Fetch) -> None:
    rows = await listed(api, store)
    assert {row["run_id"]: row["differs"] for row in rows} == {
        "menu-0": "lr 2e-3 · r 8",
        "menu-1": "lr 2e-3 · r 16",
        "menu-2": "lr 5e-4 · r 16",
        "tags-1": "",
    }
    answer = await api("compare?runs=menu-0,menu-1")
    assert [run["differs"] for run in json.loads(answer.body)["runs"]] == [
        "lr 2e-3 · r 8",
        "lr 2e-3 · r 16",
    ]


async def test_a_run_has_one_name_everywhere_and_no_filter_changes_it(
    store: RunStore, api: Fetch
) -> None:
    """A seed of its own for each run says less than the values of its sweep (S05, S16)."""
    for number in range(6):
        config = {"seed": 23 + number, "method": {"r": (16, 32)[number % 2]}}
        config |= {"optimizer": {"learning_rate": (1e-4, 3e-4, 1e-3)[number // 2]}}
        add(store, f"tiny-{number}", config=config, created_s=100.0 + number)
    # Submitted again as it was.
    add(store, "tiny-6", config=config, created_s=4000.0)
    rows = await listed(api, store)
    names = {row["run_id"]: row["differs"] for row in rows if row["name"] == "tiny"}
    assert names["tiny-0"] == "lr 1e-4 · r 16"
    assert names["tiny-3"] == "lr 3e-4 · r 32"
    assert names["tiny-6"].startswith("lr 1e-3 · r 32 · ")
    assert len(set(names.values())) == 7
    for where in ("name == 'tiny'", "method.r == 32 and name == 'tiny'", "run == 'tiny-3'", ""):
        answer = await ask(api, where=where)
        runs = [line["run"] for line in answer["lines"]]
        shown = {run["run_id"]: run["label"] for run in runs if run["run_id"] in names}
        assert shown == {run_id: names[run_id] for run_id in shown}
        assert len(shown) >= 1
        assert {run["config"] for run in runs if run["run_id"] in shown} == {"tiny"}
        listing = list_rows(store, Query(where=where))
        assert {key: listing.names[key] for key in shown} == shown
    some = newest(store, limit=3)
    assert some.names == {row.run_id: names[row.run_id] for row in some.rows}
    answer = await api("compare?runs=tiny-0,tiny-2")
    compared = {run["run_id"]: run["differs"] for run in json.loads(answer.body)["runs"]}
    assert compared == {key: names[key] for key in ("tiny-0", "tiny-2")}
    assert labels_of(store, ["tiny-0", "menu-0"]) == {
        "tiny-0": "tiny · lr 1e-4 · r 16",
        "menu-0": "menu · lr 2e-3 · r 8",
    }
