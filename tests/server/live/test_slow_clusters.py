"""A credential plug-in that never answers: what does not need its cluster answers all the same."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from llmops_kernel.providers.kuberay.api.plugin import LIMIT_ENV_VAR
from llmops_kernel.providers.kuberay.provider import KubeRayProvider
from tests.server.conftest import Fetch, ProviderTypes

HANGING = 72
"""Three times the threads that may wait for clusters."""
QUICK = ("runs", "templates", "configs/template?kind=train")


@pytest.fixture
def provider_types(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ProviderTypes:
    plugin, config = tmp_path / "hangs", tmp_path / "kubeconfig"
    plugin.write_text("#!/bin/sh\nsleep 600\n")
    plugin.chmod(0o755)
    command = {"apiVersion": "client.authentication.k8s.io/v1", "command": str(plugin)}
    named = {"cluster": "far", "user": "far"}
    config.write_text(
        yaml.safe_dump(
            {
                "current-context": "far",
                "clusters": [{"name": "far", "cluster": {"server": "https://127.0.0.1:1"}}],
                "users": [{"name": "far", "user": {"exec": command}}],
                "contexts": [{"name": "far", "context": named}],
            }
        )
    )
    monkeypatch.setenv("KUBECONFIG", str(config))
    monkeypatch.setenv(LIMIT_ENV_VAR, "60")
    monkeypatch.setenv("LLMOPS_HOME", str(tmp_path / "home"))
    return [KubeRayProvider]


async def test_other_routes_answer_and_those_of_clusters_say_what_hangs(api: Fetch) -> None:
    asked = [
        asyncio.ensure_future(api("clusters/far", request_timeout=120)) for _ in range(HANGING)
    ]
    await asyncio.sleep(0.5)
    quick = await asyncio.gather(*(api(path, request_timeout=60) for path in QUICK))
    waiting = sum(not one.done() for one in asked)
    assert [answer.code for answer in quick] == [200] * len(QUICK)
    # If they shared their threads, the quick ones would begin after two thirds of the others.
    assert waiting > HANGING / 3
    for answer in await asyncio.gather(*asked):
        trouble: dict[str, Any] = json.loads(answer.body)
        assert answer.code == 404, trouble
        assert "The credential plug-in hangs of context far has not answered" in trouble["message"]
        assert "shows whether it works" in trouble["remedy"]
