"""A Ray that answers, and a store of runs, for the life of simulated clusters."""

from __future__ import annotations

import pytest

from llmops_kernel.store.store import RunStore
from tests.providers.kuberay.conftest import Cloud


@pytest.fixture
def store(cloud: Cloud) -> RunStore:
    return RunStore()
