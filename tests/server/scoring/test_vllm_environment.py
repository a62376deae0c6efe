"""*Submit* and *Re-submit* of a scoring in Lab make vLLM's environment, and show that they do."""

from __future__ import annotations

import asyncio
import fcntl
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from llmops_kernel import score_env
from llmops_kernel.score_env import MADE
from llmops_kernel.services.submission import from_config
from llmops_kernel.store.record import RunRecord
from llmops_kernel.store.store import RunStore
from tests.server.conftest import Fetch, ProviderTypes
from tests.services.scoring.test_engine_environment import CONFIG, Ready


@pytest.fixture
def provider_types(home: Path, monkeypatch: pytest.MonkeyPatch) -> ProviderTypes:
    monkeypatch.delenv(score_env.ENV_VAR, raising=False)
    return [Ready]


async def begun(api: Fetch, route: str, **body: Any) -> str:
    answer = await api(route, method="POST", body=json.dumps({"cluster": "lab", **body}))
    assert answer.code == 202, answer.body
    return f"operations/{json.loads(answer.body)['id']}"


async def once(api: Fetch, operation: str, *, line: str = "") -> Any:
    """Return the operation once it has ended, or once it has reported a line."""
    for _ in range(400):
        now = json.loads((await api(operation)).body)
        if now["state"] != "running" or (line and line in " ".join(now["lines"])):
            return now
        await asyncio.sleep(0.05)
    raise AssertionError(now)


@pytest.mark.parametrize("door", ["runs", "runs/tags-1/resubmit"])
async def test_it_is_made_before_the_run_is_sent(api: Fetch, jp_root_dir: Path, door: str) -> None:
    (jp_root_dir / "rows.jsonl").write_text('{"text": "a"}\n')
    path = jp_root_dir / "x.score.yaml"
    path.write_text(json.dumps(CONFIG))
    if door == "runs":
        body = {"path": path.name}
    else:
        body = {}
        record = RunRecord(
            run_id="tags-1",
            name="tags",
            kind="score",
            created_s=1.0,
            cluster="lab",
            config=from_config(path).config.model_dump(mode="json"),
            workspace_root=str(jp_root_dir),
        )
        RunStore().create(record, config_yaml="")
    # Another process is making the environment, so that this test need not.
    score_env.path().parent.mkdir(parents=True)
    with score_env.path().with_suffix(".lock").open("a") as first:
        fcntl.flock(first, fcntl.LOCK_EX)
        operation = await begun(api, door, **body)
        now = await once(api, operation, line="another process that makes")
        assert now["state"] == "running", now
        score_env.python().parent.mkdir(parents=True)
        score_env.python().symlink_to(sys.executable)
        (score_env.path() / MADE).touch()
    ended = await once(api, operation)
    assert ended["trouble"]["message"] == "lab was asked"


async def test_transformers_needs_none(api: Fetch, jp_root_dir: Path) -> None:
    (jp_root_dir / "rows.jsonl").write_text('{"text": "a"}\n')
    text = json.dumps({**CONFIG, "engine": {"type": "transformers"}})
    ended = await once(api, await begun(api, "runs", text=text, path="x.score.yaml"))
    assert ended["trouble"]["message"] == "lab was asked"
    assert len(ended["lines"]) == 1
