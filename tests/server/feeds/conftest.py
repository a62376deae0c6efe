"""A store and its followers, of which no feed may keep one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from llmops_kernel.server.runs.followers import Followers
from llmops_kernel.services.backend import Backend
from llmops_kernel.store.store import RunStore


@pytest.fixture
def store(home: Path) -> RunStore:
    return RunStore()


@pytest.fixture
def followers(store: RunStore) -> Iterator[Followers]:
    found = Followers(Backend(store=store))
    yield found
    assert len(found) == 0, "somebody kept a follower"
