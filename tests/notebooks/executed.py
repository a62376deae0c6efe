"""Runs a notebook from top to bottom as papermill runs it, and reads its cells."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"


def code_cells(path: Path) -> list[dict[str, Any]]:
    cells = json.loads(path.read_text())["cells"]
    return [cell for cell in cells if cell["cell_type"] == "code"]


def output(cells: list[dict[str, Any]], source: str) -> str:
    """All outputs of the cells that contain the words, as JSON."""
    return "".join(
        json.dumps(output)
        for cell in cells
        if source in "".join(cell["source"])
        for output in cell["outputs"]
    )


def check_template(name: str, parameters: Collection[str]) -> None:
    """A shipped notebook has one cell with the parameters, and no outputs."""
    cells = code_cells(NOTEBOOKS / name)
    [tagged] = [cell for cell in cells if "parameters" in cell["metadata"].get("tags", ())]
    for parameter in parameters:
        assert f"{parameter} = " in "".join(tagged["source"])
    assert all(not cell["outputs"] and cell["execution_count"] is None for cell in cells)


def run_notebook(name: str, parameters: Mapping[str, Any], folder: Path) -> list[dict[str, Any]]:
    """Run a copy in `folder`, which is made; return its code cells with their outputs."""
    shutil.copytree(NOTEBOOKS, folder, ignore=shutil.ignore_patterns("my-*"))
    given = [word for name, value in parameters.items() for word in ("-p", name, str(value))]
    command = [sys.executable, "-m", "papermill", name, "result.ipynb", *given]
    done = subprocess.run(
        [*command, "--no-progress-bar"], cwd=folder, capture_output=True, text=True, timeout=400
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return code_cells(folder / "result.ipynb")
