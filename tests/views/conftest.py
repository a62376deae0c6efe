from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from llmops_kernel.store.paths import RunFolder
from tests.widgets.simulate import Simulation


@pytest.fixture
def simulate(tmp_path: Path) -> Callable[..., Simulation]:
    """Makes a simulation in a folder of its own."""

    def make(name: str = "run", **settings: Any) -> Simulation:
        return Simulation(RunFolder(tmp_path / name), **settings)

    return make
