"""A third kind of run, registered from outside, through the server's routes on a real Ray."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from llmops_kernel.providers.protocol import ClusterInfo
from tests.kinds.toy import registered, write_workspace
from tests.server.conftest import Fetch
from tests.server.test_config_routes import post, reported

pytestmark = pytest.mark.ray


@pytest.fixture(autouse=True)
def _toy() -> Iterator[None]:
    with registered():
        yield


async def ended(api: Fetch, path: str, *, states: set[str]) -> Any:
    for _ in range(600):
        found = reported(await api(path))
        state = found["state"] if "state" in found else found["row"]["state"]
        if state in states:
            return found
        await asyncio.sleep(0.2)
    raise AssertionError(f"{path} did not end: {found}")


async def submitted(api: Fetch, **body: Any) -> str:
    begun = reported(await post(api, "runs", **body), 202)
    done = await ended(api, f"operations/{begun['id']}", states={"done", "failed"})
    assert done["state"] == "done", done
    return str(done["result"]["run_id"])


async def test_it_is_edited_submitted_and_shown(
    ray_cluster: ClusterInfo, api: Fetch, jp_root_dir: Path
) -> None:
    write_workspace(jp_root_dir / "work")
    path = "work/small.index.yaml"
    kinds = {kind["name"]: kind for kind in reported(await api("configs/kinds"))}
    assert kinds["index"]["globs"] == ["*.index.yaml"]
    assert kinds["index"]["is_run"] is True
    text = reported(await api("configs/template?kind=index"))["text"]
    checked = reported(await post(api, "configs/check", path=path, text=text, with_files=True))
    assert (checked["kind"], checked["valid"]) == ("index", True)
    offered = reported(await post(api, "configs/complete", path=path, text="", line=1, column=0))
    assert "suffix" in {one["label"] for one in offered}

    run_id = await submitted(api, path=path, cluster=ray_cluster.name, overrides=["suffix=.md"])
    detail = await ended(api, f"runs/{run_id}", states={"SUCCEEDED", "FAILED"})
    assert (detail["row"]["kind"], detail["row"]["state"]) == ("index", "SUCCEEDED")
    assert (detail["config_path"], detail["overrides"]) == ("small.index.yaml", {"suffix": ".md"})

    edited = "name: edited\nfolder: docs\n"
    run_id = await submitted(api, path=path, text=edited, cluster=ray_cluster.name)
    detail = await ended(api, f"runs/{run_id}", states={"SUCCEEDED", "FAILED"})
    assert detail["row"]["state"] == "SUCCEEDED"
    assert detail["row"]["progress"] == {"done": 3, "total": 3, "unit": "documents"}
    assert [figure["label"] for figure in detail["row"]["figures"]] == ["documents/s"]
    wrong = await post(api, "runs", path=path, text="folder: 1\npause: 2\n", cluster="test")
    assert wrong.code >= 400
    assert "pause: unknown key" in json.dumps(json.loads(wrong.body))
