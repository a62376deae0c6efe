from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.views.conftest import simulate
from tests.widgets.folder_run import FolderRun
from tests.widgets.simulate import Simulation

__all__ = ["simulate"]


@pytest.fixture
def opened() -> Callable[[Simulation], FolderRun]:
    return lambda simulation: FolderRun(simulation.folder)
