"""The routes that show the data of a config: what they answer, refuse, and do not block."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import psutil
import pytest
from tornado.httpclient import HTTPResponse
from tornado.simple_httpclient import HTTPTimeoutError

from tests.server.conftest import Fetch
from tests.server.test_config_routes import post, reported

TEXT = "model: tiny-llama\ndata: {train: rows.jsonl, max_length: 24}\n"
BODY = {"path": "sub/x.train.yaml", "text": TEXT}


@pytest.fixture
def folder(jp_root_dir: Path) -> Path:
    place = jp_root_dir / "sub"
    place.mkdir()
    long = {"prompt": "say", "completion": "x" * 40}
    rows = [{"prompt": "say \x1b", "completion": "a\nb"}, long]
    (place / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return place


async def look(api: Fetch, path: str, /, **body: Any) -> HTTPResponse:
    """Wait longer than usual: the answer comes from a new process, maybe on a busy machine."""
    return await api(path, method="POST", body=json.dumps(body), request_timeout=200)


async def test_figures_and_rows_of_a_text_that_is_not_saved(api: Fetch, folder: Path) -> None:
    found = reported(await look(api, "configs/data", **BODY))
    facts = {fact["label"]: fact for fact in found["facts"]}
    assert facts["rows"]["text"] == "2 rows of rows.jsonl"
    assert facts["cut"]["level"] == "warning"
    assert [line["rows"] for line in found["bins"] if line["label"] == "max_length 24"] == [None]
    assert sum(line["rows"] or 0 for line in found["bins"]) == 2
    first, second = found["rows"]
    assert "".join(token["text"] for token in first["tokens"]) == (
        "<|user|>say \\x1b<|end|><|assistant|>a↵\nb<|end|>"
    )
    assert {token["kind"] for token in second["tokens"]} == {"context", "loss", "cut"}
    assert (found["side"], found["has_eval"]) == ("train", False)


async def test_one_row_is_asked_for_by_its_number(api: Fetch, folder: Path) -> None:
    row = reported(await look(api, "configs/data/row", **BODY, row=2))
    assert (row["number"], row["hidden"]) == (2, 0)


async def test_a_fault_of_the_data_is_an_error_with_its_remedy(api: Fetch, folder: Path) -> None:
    missing = reported(await look(api, "configs/data/row", **BODY, row=3), 422)
    assert missing["message"] == "rows.jsonl has no row 3: the run uses 2."
    assert missing["remedy"]


async def test_what_cannot_be_shown_is_an_error_with_its_remedy(api: Fetch, folder: Path) -> None:
    wrong = reported(await post(api, "configs/data", **{**BODY, "text": TEXT + "sed: 1\n"}), 422)
    assert [problem["path"] for problem in wrong["problems"]] == ["sed"]
    held_out = reported(await post(api, "configs/data", **BODY, side="eval"), 422)
    assert "names no evaluation rows" in held_out["message"]
    for other in (
        {"path": "sub/x.script.yaml", "text": "script: a.py\n"},
        {"kind": "cluster", "text": "num_cpus: 2\n"},
    ):
        refused = reported(await post(api, "configs/data", **other), 422)
        assert "is not a training config" in refused["message"]
    many = reported(await post(api, "configs/data", **BODY, rows=10**9), 422)
    assert "rows" in many["message"]
    outside = {"path": "../x.train.yaml", "text": TEXT}
    assert (await post(api, "configs/data", **outside)).code == 403


async def test_a_slow_hook_blocks_no_other_request(api: Fetch, folder: Path) -> None:
    lines = (
        "import pathlib, time",
        "def format_example(row):",
        f"    while not pathlib.Path({str(folder / 'go')!r}).exists():",
        "        time.sleep(0.02)",
        "    return {'text': 'a b'}",
    )
    (folder / "slow.py").write_text("\n".join(lines))
    slow = {**BODY, "text": TEXT + "hooks: slow.py\n"}
    waiting = asyncio.ensure_future(look(api, "configs/data", **slow))
    others: list[Any] = [await api("configs/kinds") for _ in range(5)]
    assert [answer.code for answer in others] == [200] * 5
    assert not waiting.done()
    (folder / "go").touch()
    assert reported(await waiting)["facts"]


def hold(folder: Path) -> str:
    """Write a hook that waits for ever, and tells its process; return the config."""
    lines = (
        "import os, pathlib, time",
        f"pathlib.Path({str(folder / 'pid')!r}).write_text(str(os.getpid()))",
        "def format_example(row):",
        "    time.sleep(600)",
    )
    (folder / "held.py").write_text("\n".join(lines))
    return TEXT + "hooks: held.py\n"


async def held_pid(folder: Path) -> int:
    while not (folder / "pid").exists() or not (folder / "pid").read_text():
        await asyncio.sleep(0.05)
    return int((folder / "pid").read_text())


async def is_over(pid: int) -> bool:
    for _ in range(200):
        if not psutil.pid_exists(pid) or psutil.Process(pid).status() == "zombie":
            return True
        await asyncio.sleep(0.05)
    return False


async def test_a_client_that_goes_away_ends_its_process(api: Fetch, folder: Path) -> None:
    body, given = json.dumps({**BODY, "text": hold(folder)}), 3.0
    pid = folder / "pid"
    while not pid.exists() or not pid.read_text():  # on a busy machine it starts slowly
        with pytest.raises(HTTPTimeoutError):  # It closes the connection.
            await api("configs/data", method="POST", body=body, request_timeout=given)
        given *= 3
    assert await is_over(int(pid.read_text()))


async def test_the_newest_question_about_a_config_wins(api: Fetch, folder: Path) -> None:
    text = hold(folder)
    first = asyncio.ensure_future(look(api, "configs/data", **{**BODY, "text": text}))
    pid = await held_pid(folder)
    newest = reported(await look(api, "configs/data", **BODY))
    assert newest["facts"]
    assert "newer request" in reported(await first, 422)["message"]
    assert await is_over(pid)
