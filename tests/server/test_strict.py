"""A training that will not fit in memory is refused where Lab's settings say so."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.metrics.test_flops import CONFIGS
from tests.server.conftest import Fetch, ProviderTypes
from tests.services.test_submission import TRAINING, Remote


@pytest.fixture
def provider_types(home: Path) -> ProviderTypes:
    return [Remote]


@pytest.mark.parametrize(("strict", "reason"), [(True, "H100"), (False, "far was asked")])
async def test_a_submission_is_refused_by_its_plan_if_it_is_strict(
    api: Fetch, jp_root_dir: Path, strict: bool, reason: str
) -> None:
    (jp_root_dir / "rows.jsonl").write_text('{"text": "one"}\n')
    (jp_root_dir / "Llama-2-70B").mkdir()
    (jp_root_dir / "Llama-2-70B" / "config.json").write_text(json.dumps(CONFIGS["Llama-2-70B"]))
    (jp_root_dir / "large.train.yaml").write_text(json.dumps(TRAINING))
    body = {"path": "large.train.yaml", "cluster": "far", "strict": strict}
    answer = await api("runs", method="POST", body=json.dumps(body))
    operation: dict[str, Any] = json.loads(answer.body)
    while operation["state"] == "running":
        await asyncio.sleep(0.05)
        operation = json.loads((await api(f"operations/{operation['id']}")).body)
    assert reason in json.dumps(operation)
    assert operation["state"] == "failed"
