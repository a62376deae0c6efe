"""Every test of this folder has a home and a cache of its own."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _own_home(home: Path) -> None:
    """Every test here has one."""
