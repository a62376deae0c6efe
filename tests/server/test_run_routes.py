"""The routes of runs, their logs and comparisons."""

from __future__ import annotations

import asyncio
import json
import struct
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from llmops_kernel.kinds.train import COLUMNS
from llmops_kernel.metrics.events import EvalEvent, ProfileEvent
from llmops_kernel.store.package.packages import build
from llmops_kernel.store.package.workspace import scan
from llmops_kernel.store.store import RunStore
from llmops_kernel.views import format as fmt
from tests.server.runs import add_attempt, make_run, worker

Ask = Callable[..., Awaitable[Any]]


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunStore:
    """Below Jupyter's root, as on a hub where both lie in the home folder."""
    monkeypatch.setenv("LLMOPS_HOME", str(tmp_path / "root_dir" / "llmops"))
    monkeypatch.setenv("LLMOPS_CACHE", str(tmp_path / "cache"))
    return RunStore()


@pytest.fixture
def ask(store: RunStore, api: Any) -> Ask:
    """A request with a JSON body; returns (status, answer)."""

    async def send(url: str, verb: str = "GET", /, **body: Any) -> tuple[int, Any]:
        text = None if verb == "GET" else json.dumps(body)
        answer = await api(url, method=verb, body=text)
        return answer.code, json.loads(answer.body)

    return send


async def ended(ask: Ask, operation: dict[str, Any]) -> dict[str, Any]:
    for _ in range(100):
        _, operation = await ask(f"operations/{operation['id']}")
        if operation["state"] != "running":
            return operation
        await asyncio.sleep(0.05)
    raise AssertionError("it did not end in time")


async def test_the_list_is_newest_first(ask: Ask, store: RunStore) -> None:
    assert await ask("runs") == (200, [])
    make_run(store, "r-1", steps=3, created_s=1.0)
    make_run(store, "r-2", steps=3, created_s=2.0, ended=None)
    code, rows = await ask("runs")
    assert (code, [row["run_id"] for row in rows]) == (200, ["r-2", "r-1"])
    assert rows[0]["state"] == "RUNNING"
    assert rows[1]["submission_id"] == "r-1-1"


async def test_one_run_in_full(ask: Ask, store: RunStore) -> None:
    root = make_run(store, "r-1", steps=3, versions={"ray": "2"}, overrides={"seed": "7"})
    (root / "output").mkdir()
    (root / "output" / "adapter.bin").write_bytes(b"x" * 100)
    code, reported = await ask("runs/last")
    assert code == 200
    assert reported["row"]["run_id"] == "r-1"
    assert reported["config_yaml"].startswith("optimizer:")
    assert reported["overrides"] == {"seed": "7"}
    assert [(a["number"], a["state"]) for a in reported["attempts"]] == [(1, "SUCCEEDED")]
    assert reported["outputs"][0]["size_bytes"] == 100
    assert reported["contents_path"] == "llmops/runs/r-1"
    assert reported["outputs"][0]["contents_path"] == "llmops/runs/r-1/output"


async def test_notes_change_one_by_one(ask: Ask, store: RunStore) -> None:
    make_run(store, "r-1")
    assert (await ask("runs/r-1", "PATCH", title="mine"))[0] == 200
    code, reported = await ask("runs/r-1", "PATCH", starred=True, note="so far so good")
    expected = {"title": "mine", "starred": True, "note": "so far so good"}
    empty = dict.fromkeys(("group", "project", "phase", "colour"), "")
    assert (code, reported) == (200, {**expected, **empty, "tags": []})
    assert (await ask("runs"))[1][0]["title"] == "mine"
    assert (await ask("runs/r-1", "PATCH", titel="x"))[0] == 422
    assert (await ask("runs/r-1", "PATCH", title="x" * 201))[0] >= 400


async def test_rows_are_floats(store: RunStore, api: Any) -> None:
    make_run(store, "r-1", steps=3)
    answer = await api("runs/r-1/rows")
    assert answer.code == 200, answer.body
    values = struct.unpack(f"<{len(answer.body) // 4}f", answer.body)
    assert answer.headers["X-LLMOps-Fields"] == ",".join(column.name for column in COLUMNS)
    assert values[:: len(COLUMNS)] == (1, 2, 3)


async def test_deleting_shows_a_preview_first_and_refuses_a_run_that_is_on(
    ask: Ask, store: RunStore
) -> None:
    root = make_run(store, "r-1", steps=3)
    make_run(store, "r-2", ended=None)
    _, preview = await ask("runs/r-1/preview")
    assert (preview["folder"], preview["state"]) == (str(root), "SUCCEEDED")
    assert preview["size_bytes"] > 0
    code, reported = await ask("runs/r-2", "DELETE")
    assert (code, bool(reported["remedy"])) == (409, True)
    code, operation = await ask("runs/r-1", "DELETE")
    assert code == 202
    assert (await ended(ask, operation))["state"] == "done"
    assert not root.exists()


async def test_the_code_of_a_run_comes_from_its_package(
    ask: Ask, store: RunStore, tmp_path: Path
) -> None:
    workspace = tmp_path / "ws"
    workspace.mkdir()
    (workspace / "hooks.py").write_text("print('hello')\n")
    snapshot = scan(workspace)
    packages = build(snapshot, store.packages)
    files = {name: entry.sha256_16 for name, entry in snapshot.files.items()}
    make_run(store, "r-1", code_hash=packages.code.hash, files=files)
    code, reported = await ask("runs/r-1/file?path=hooks.py")
    assert (code, reported["text"]) == (200, "print('hello')\n")
    for path in ("nothing.py", "../hooks.py", "/etc/passwd"):
        code, reported = await ask(f"runs/r-1/file?path={quote(path)}")
        assert code == 404, path
    assert (await ask("runs/r-1/git-diff"))[1]["text"] == ""


async def test_a_comparison_has_figures_and_differences(ask: Ask, store: RunStore) -> None:
    make_run(store, "r-1", steps=4, created_s=1.0)
    make_run(store, "r-2", steps=8, created_s=2.0, learning_rate=5e-5)
    code, reported = await ask("compare?runs=r-2,r-1")
    assert code == 200
    assert [run["run_id"] for run in reported["runs"]] == ["r-1", "r-2"]
    loss = next(figure for figure in reported["figures"] if figure["label"] == "loss")
    assert loss["texts"] == ["1.0000", "0.5000"]
    assert (loss["group"], loss["changes"]) == ("result", ["same", "-0.5000"])
    changes = reported["differences"][0]["config"]
    assert changes == [{"path": "optimizer.learning_rate", "before": "0.0001", "after": "5e-05"}]
    make_run(store, "r-3", steps=8, created_s=3.0)
    _, reported = await ask("compare?runs=r-1,r-2,r-3&base=r-2")
    assert reported["base"] == 1
    matrix = reported["matrix"]
    # r-1 and r-3 were submitted with one config: they are one setting.
    assert [line["runs"] for line in matrix["lines"]] == [[0, 2], [0], [2], [1]]
    at = matrix["figures"].index("loss")
    assert [line["cells"][at]["change"] for line in matrix["lines"]][1:] == ["+0.5000", "same", ""]
    assert [(d["before"], d["after"]) for d in reported["differences"]] == [
        ("r-2", "r-1"),
        ("r-2", "r-3"),
    ]
    _, reported = await ask("compare?runs=r-1,r-2,r-3")
    assert {d["before"] for d in reported["differences"]} == {"r-1"}


async def test_losses_of_different_objectives_have_no_change(ask: Ask, store: RunStore) -> None:
    make_run(store, "r-1", steps=4, created_s=1.0)
    make_run(store, "r-2", steps=8, created_s=2.0, config={"objective": {"type": "dpo"}})
    _, reported = await ask("compare?runs=r-1,r-2")
    loss = next(figure for figure in reported["figures"] if figure["label"] == "loss")
    assert (loss["texts"], loss["changes"]) == (["1.0000", "0.5000"], [fmt.DASH] * 2)
    others = [figure for figure in reported["figures"] if figure["label"] == "duration"]
    assert others[0]["changes"][1] != fmt.DASH


async def test_submitting_shows_mistakes_at_once(ask: Ask, store: RunStore) -> None:
    code, reported = await ask("runs", "POST", text="method: lore\n")
    assert code == 422
    assert any("method" in problem["path"] for problem in reported["problems"])
    assert (await ask("runs", "POST"))[0] == 422
    assert (await ask("runs", "POST", path="../outside.train.yaml"))[0] == 403
    assert (await ask("runs", "POST", path="none.train.yaml"))[0] == 404
    assert (await ask("runs", "POST", text="a: 1", workspace="../.."))[0] in (403, 422)


async def test_stop_and_retry_are_operations(ask: Ask, store: RunStore) -> None:
    make_run(store, "r-1", steps=2)
    code, operation = await ask("runs/r-1/stop", "POST")
    assert (code, operation["kind"]) == (202, "stop")
    assert (await ended(ask, operation))["state"] == "done"  # There was nothing left to stop.
    _, operation = await ask("runs/r-1/retry", "POST")
    reported = await ended(ask, operation)
    assert (reported["state"], bool(reported["trouble"]["remedy"])) == ("failed", True)


async def test_a_profile_is_asked_for_and_read(ask: Ask, store: RunStore) -> None:
    make_run(store, "r-1", steps=2)
    make_run(store, "s-1", steps=2, ended=None, kind="score")
    for run_id, body, error in (
        ("r-1", {}, "RunStateError"),
        ("r-1", {"steps": 101}, "profile 1 to 100 steps"),
        ("s-1", {}, "llmops bench"),
    ):
        code, operation = await ask(f"runs/{run_id}/profile", "POST", **body)
        assert (code, operation["kind"]) == (202, "profile")
        reported = await ended(ask, operation)
        assert reported["state"] == "failed"
        assert error == "RunStateError" or error in reported["trouble"]["remedy"]
    code, operation = await ask("runs/r-1/restart", "POST")
    assert (code, operation["kind"]) == (202, "restart")
    assert (await ask("runs/r-1/profile"))[0] == 404
    writer = worker(store, "r-1", attempt=2)
    writer.emit(ProfileEvent(first_step=1, last_step=2, path="/x"))
    writer.close()
    code, detail = await ask("runs/r-1/profile?number=0")
    assert (code, detail["number"], detail["calls"]) == (200, 0, [])


async def test_a_run_that_has_ended_is_not_moved_in_the_queue(ask: Ask, store: RunStore) -> None:
    make_run(store, "r-1", steps=2)
    assert (await ask("runs/r-1/queue", "POST", priority="urgent"))[0] == 422
    code, operation = await ask("runs/r-1/queue", "POST", before="")
    assert (code, operation["kind"]) == (202, "move")
    reported = await ended(ask, operation)
    assert (reported["state"], bool(reported["trouble"]["remedy"])) == ("failed", True)


async def test_a_log_is_read_in_windows(ask: Ask, store: RunStore, api: Any) -> None:
    root = make_run(store, "r-1", steps=2)
    add_attempt(store, "r-1", 2)
    (root / "logs").mkdir()
    text = "".join(f"line {number:04}\n" for number in range(1000))
    (root / "logs" / "driver-1.log").write_text(text)
    (root / "logs" / "driver-2.log").write_text("second\n")
    assert (await ask("runs/r-1/log/info"))[1] == {"attempt": 2, "attempts": [1, 2], "size": 7}
    assert (await ask("runs/r-1/log"))[1]["text"] == "second\n"
    _, window = await ask("runs/r-1/log?attempt=1&offset=5&limit=30")
    assert (window["text"], window["end"]) == ("line 0000\nline 0001\nline 0002\n", 30)
    _, window = await ask("runs/r-1/log?attempt=1&before=30&limit=25")
    assert (window["text"], window["offset"]) == ("line 0001\nline 0002\n", 10)
    _, found = await ask("runs/r-1/log/search?attempt=1&text=LINE+05&ignore_case=1&limit=2")
    assert [match["text"] for match in found["matches"]] == ["line 0500", "line 0501"]
    assert found["next"] == 5020
    answer = await api("runs/r-1/log/download?attempt=1")
    assert answer.body.decode() == text
    assert "attachment" in answer.headers["Content-Disposition"]
    assert (await ask("runs/r-1/log/search?attempt=1&text=(&regex=1"))[0] == 422
    assert (await ask("runs/r-1/log?attempt=7"))[0] == 404
    assert (await ask("runs/r-1/log?limit=999999999"))[0] == 422
    assert (await ask("runs/r-1/log?offset=x"))[0] == 400


async def test_runs_of_benchmarks_are_listed_only_when_asked_for(ask: Ask, store: RunStore) -> None:
    make_run(store, "bench-1", steps=3, created_s=1.0, hidden=True)
    make_run(store, "r-1", steps=3, created_s=2.0)
    _, rows = await ask("runs")
    assert [row["run_id"] for row in rows] == ["r-1"]
    _, rows = await ask("runs?all=1")
    assert [(row["run_id"], row["hidden"]) for row in rows] == [("r-1", False), ("bench-1", True)]


async def test_samples_come_page_by_page(store: RunStore, ask: Ask) -> None:
    make_run(store, "r-1", steps=2, ended=None)
    samples = tuple({"row": f"{n}", "prompt": "p", "prediction": "a"} for n in range(10_000))
    worker(store, "r-1").emit(EvalEvent(step=2, metrics={}, samples=samples))
    status, page = await ask("runs/r-1/samples?first=9990")
    assert (status, page["first"], page["total"], page["at"]) == (200, 9990, 10_000, "at step 2")
    assert [row[0] for row in page["rows"]] == [f"{n}" for n in range(9990, 10_000)]
    assert len((await ask("runs/r-1/samples"))[1]["rows"]) == 50
    status, answer = await ask("runs/r-1/samples?first=-1")
    assert status == 422
    assert "first must not be negative" in answer["message"]
