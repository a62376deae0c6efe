"""Writes the scripts of tests and waits for their runs."""

from __future__ import annotations

import textwrap
from pathlib import Path

from llmops_kernel.api import Run


def write(folder: Path, text: str, name: str = "train.py") -> Path:
    path = folder / name
    path.write_text(textwrap.dedent(text))
    return path


def succeeded(run: Run) -> Run:
    assert run.wait(180) == "SUCCEEDED", run.logs()
    return run
