"""Every test of this folder has a home and a cache of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from llmops_kernel.store.store import RunStore


@pytest.fixture(autouse=True)
def _own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLMOPS_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("LLMOPS_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def store(tmp_path: Path) -> RunStore:
    return RunStore(tmp_path / "home")
