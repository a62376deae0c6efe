"""What Jupyter loads: found by its entry, configured like any application."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pytest
from traitlets.config import Config

import llmops_kernel.server
from llmops_kernel.errors import ConfigError
from llmops_kernel.server.app import LLMOpsApp, bring_up
from llmops_kernel.server.base import RequestError
from llmops_kernel.server.manager import Manager
from llmops_kernel.services.backend import Backend
from llmops_kernel.store.store import RunStore

ROOT = Path(__file__).parents[2]
CONFIG = "extension/jupyter-config/server-config/llmops_kernel.json"


def test_jupyter_finds_the_extension() -> None:
    point = llmops_kernel.server._jupyter_server_extension_points()[0]
    assert point["app"] is LLMOpsApp
    enabled = json.loads((ROOT / CONFIG).read_text())
    assert enabled["ServerApp"]["jpserver_extensions"] == {point["module"]: True}


class TestWrongTemplate:
    @pytest.fixture
    def jp_server_config(self, jp_server_config: Config) -> Config:
        jp_server_config.LLMOpsApp.initial_clusters = ["no-such-template"]
        jp_server_config.LLMOpsApp.dashboard_writable = True
        return jp_server_config

    async def test_the_server_starts_all_the_same(self, api: Any) -> None:
        answer = await api("handshake")
        assert json.loads(answer.body)["dashboard_writable"] is True
        assert json.loads((await api("operations")).body) == []


def test_a_template_is_named_or_is_below_the_root(tmp_path: Path) -> None:
    manager = Manager(root_dir=tmp_path)
    with pytest.raises(RequestError, match=r"\.\."):
        bring_up(manager, "../elsewhere.yaml")
    with pytest.raises(RequestError, match="no-such-template"):
        bring_up(manager, "no-such-template")
    (tmp_path / "bad.yaml").write_text("num_cpus: many\n")
    with pytest.raises(ConfigError):
        bring_up(manager, "bad.yaml")


async def test_a_server_that_starts_removes_what_a_killed_deletion_left(tmp_path: Path) -> None:
    store = RunStore(tmp_path / "home")
    left = store.root / "runs" / ".deleted-old-1a2b"
    left.mkdir(parents=True)
    (left / "weights").write_text("w")
    manager = Manager(root_dir=tmp_path, backend=Backend(store=store, providers=list))
    try:
        deadline_s = time.monotonic() + 60
        while left.exists():
            assert time.monotonic() < deadline_s
            await asyncio.sleep(0.05)
    finally:
        await manager.close()
