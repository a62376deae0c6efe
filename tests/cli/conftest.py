"""A home of its own for each test, and the command as a user calls it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from llmops_kernel.cli.main import main
from llmops_kernel.services.backend import Backend

Llmops = Callable[..., int]


def call(*arguments: str, backend: Backend | None = None) -> int:
    """Run a command in this process; return its exit code. Output is captured as usual."""
    with pytest.raises(SystemExit) as leaving:
        main(arguments, backend=backend)
    code = leaving.value.code
    return code if isinstance(code, int) else 0


@pytest.fixture
def llmops(home: Path) -> Llmops:
    """The command in a home of its own."""
    return call


def process(*arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Runs a command in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "llmops_kernel.cli.main", *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, **env},
        timeout=500,
        check=False,
    )
