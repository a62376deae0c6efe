"""A Ray that answers, and a store of runs, for the life of simulated clusters."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from llmops_kernel.store.store import RunStore
from tests.providers.kuberay.conftest import Cloud
from tests.providers.kuberay.ray_dashboard import RayDashboard


@pytest.fixture
def ray() -> Iterator[RayDashboard]:
    with RayDashboard() as answering:
        yield answering


@pytest.fixture
def store(cloud: Cloud) -> RunStore:
    return RunStore()
