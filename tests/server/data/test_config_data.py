"""The routes that show the data of a config: what they answer, refuse, and do not block."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from tornado.httpclient import HTTPResponse

from tests.server.conftest import Fetch
from tests.server.test_config_routes import post, reported

TEXT = "model: tiny-llama\ndata: {train: rows.jsonl, max_length: 24}\n"
BODY = {"path": "sub/x.train.yaml", "text": TEXT}


@pytest.fixture
def folder(jp_root_dir: Path) -> Path:
    place = jp_root_dir / "sub"
    place.mkdir()
    rows = [{"prompt": "say \x1b", "completion": "a\nb"}, {"text": "x" * 40}]
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
