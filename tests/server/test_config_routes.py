"""The config routes: what they answer, and what they refuse."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tornado.httpclient import HTTPResponse

from tests.messages import missing
from tests.server.conftest import Fetch

TEXT = "model: tiny-llama\ndata: rows.jsonl\n"


async def post(api: Fetch, path: str, /, **body: Any) -> HTTPResponse:
    return await api(path, method="POST", body=json.dumps(body))


def reported(response: HTTPResponse, status: int = 200) -> Any:
    assert response.code == status, response.body
    return json.loads(response.body)


async def test_kinds_schema_and_template(api: Fetch) -> None:
    kinds = reported(await api("configs/kinds"))
    assert [kind["name"] for kind in kinds] == ["train", "script", "score", "cluster"]
    assert [kind["is_run"] for kind in kinds] == [True, True, True, False]
    schema = reported(await api("configs/schema?kind=cluster"))
    assert schema["properties"]["num_cpus"]["nullable"] is True
    kuberay = reported(await api("configs/schema?kind=cluster&provider=kuberay"))
    assert "worker_groups" in kuberay["properties"]
    template = reported(await api("configs/template?kind=train"))
    checked = reported(await post(api, "configs/check", kind="train", text=template["text"]))
    assert checked["valid"] is True


async def test_check_shows_effect_or_problems(api: Fetch) -> None:
    right = reported(await post(api, "configs/check", path="a/x.train.yaml", text=TEXT))
    assert right["valid"]
    assert right["effect"]
    assert right["values"]["model"] == {"id": "tiny-llama"}
    wrong = reported(
        await post(api, "configs/check", kind="train", text=TEXT + "sed: 1\nname: A b\n")
    )
    assert not wrong["valid"]
    assert [(d["line"], d["column"], d["end_column"]) for d in wrong["diagnostics"]] == [
        (3, 0, 3), (4, 6, 9)
    ]  # fmt: skip
    overrides = ["training.max_steps=0"]
    bad = reported(await post(api, "configs/check", kind="train", text=TEXT, overrides=overrides))
    assert bad["diagnostics"][0]["file"] == "override training.max_steps=0"


async def test_files_are_looked_at_beside_the_config(api: Fetch, jp_root_dir: Path) -> None:
    (jp_root_dir / "sub").mkdir()
    body = {"path": "sub/x.train.yaml", "text": TEXT, "with_files": True}
    missing = reported(await post(api, "configs/check", **body))
    assert "no such file" in missing["diagnostics"][0]["message"]
    assert missing["diagnostics"][0]["line"] == 2
    (jp_root_dir / "sub" / "rows.jsonl").write_text('{"text": "a"}\n')
    assert reported(await post(api, "configs/check", **body))["valid"]
    place = {"path": "sub/x.train.yaml", "text": "data: ", "line": 1, "column": 6}
    found = reported(await post(api, "configs/complete", **place))
    assert "rows.jsonl" in [item["label"] for item in found]


async def test_a_close_check_tries_rows_and_tells_warnings(api: Fetch, jp_root_dir: Path) -> None:
    (jp_root_dir / "rows.jsonl").write_text('{"text": "a"}\n' * 3)
    text = TEXT + "optimizer: {warmup_steps: 9}\ntraining: {max_steps: 4}\n"
    body = {"path": "x.train.yaml", "text": text, "with_files": True}
    light = reported(await post(api, "configs/check", **body))
    assert [(one["path"], one["line"]) for one in light["warnings"]] == [
        ("optimizer.warmup_steps", 3)
    ]
    assert light["checked"] == []
    long = {"method": "POST", "request_timeout": 200}
    answer = await api("configs/check", body=json.dumps({**body, "closely": True}), **long)
    close = reported(answer)
    assert close["valid"]
    assert [(one["path"], one["line"], one["severity"]) for one in close["warnings"]] == [
        ("data.train", 2, "warning"),
        ("optimizer.warmup_steps", 3, "warning"),
    ]
    assert "2 of 3 rows (66.7 %) repeat another one" in close["warnings"][0]["message"]
    assert missing(close["checked"][0], "3 rows", "rows.jsonl", "tokenised") == []


async def test_complete_and_hover(api: Fetch) -> None:
    found = reported(await post(api, "configs/complete", kind="train", text="", line=1, column=0))
    assert found[0]["label"] == "model"
    place = {"kind": "train", "text": TEXT, "line": 1, "column": 2}
    assert reported(await post(api, "configs/hover", **place))["title"] == "model"
    assert reported(await post(api, "configs/hover", **{**place, "line": 9})) is None


async def test_render(api: Fetch) -> None:
    data = {"name": "big", "num_cpus": 4, "num_gpus": None}
    text = reported(await post(api, "configs/render", kind="cluster", data=data))["text"]
    assert text == "name: big\nnum_cpus: 4\n"


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("configs/check", {"text": "a"}, 422),
        ("configs/check", {"kind": "tain", "text": "a"}, 422),
        ("configs/check", {"path": "notes.txt", "text": "a"}, 422),
        ("configs/check", {"path": "../x.train.yaml", "text": "a"}, 403),
        ("configs/check", {"kind": "train", "text": 5}, 422),
        ("configs/check", {"kind": "train", "text": "a", "more": 1}, 422),
        ("configs/complete", {"path": "../../etc/x.train.yaml", "text": "data: ", "line": 1,
                              "column": 6}, 403),
        ("configs/complete", {"kind": "train", "text": ""}, 422),
        ("configs/check", {"kind": "train", "text": "x" * 1_100_000}, 413),
    ],
)  # fmt: skip
async def test_refusals(api: Fetch, path: str, body: dict[str, Any], status: int) -> None:
    answer = reported(await post(api, path, **body), status)
    assert answer["message"]


async def test_unknown_kind_and_broken_json(api: Fetch) -> None:
    assert "train" in reported(await api("configs/schema?kind=tran"), 422)["message"]
    reported(await api("configs/schema"), 400)
    reported(await api("configs/check", method="POST", body="{"), 400)


@pytest.mark.parametrize("path", ["kinds", "schema?kind=train", "template?kind=train"])
async def test_reading_needs_the_token(raw: Fetch, path: str) -> None:
    assert (await raw(f"llmops/configs/{path}")).code == 403


@pytest.mark.parametrize("path", ["check", "complete", "hover", "render"])
async def test_writing_needs_the_token(raw: Fetch, path: str) -> None:
    response = await raw(f"llmops/configs/{path}", method="POST", body="{}")
    assert response.code == 403
