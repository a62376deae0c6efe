"""The notebook about scoring, run from top to bottom as papermill runs it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
NAME = "04-score.ipynb"
PARAMETERS = {"model": "tiny-llama", "max_steps": 2, "max_length": 512, "rows": 6}


def _cells(path: Path) -> list[dict[str, Any]]:
    cells = json.loads(path.read_text())["cells"]
    return [cell for cell in cells if cell["cell_type"] == "code"]


def _output(cells: list[dict[str, Any]], source: str) -> str:
    """All outputs of the cells that contain the words."""
    return "".join(
        json.dumps(output)
        for cell in cells
        if source in "".join(cell["source"])
        for output in cell["outputs"]
    )


def test_it_has_a_parameters_cell_and_no_outputs() -> None:
    cells = _cells(NOTEBOOKS / NAME)
    [tagged] = [cell for cell in cells if "parameters" in cell["metadata"].get("tags", ())]
    for name in PARAMETERS:
        assert f"{name} = " in "".join(tagged["source"])
    assert all(not cell["outputs"] and cell["execution_count"] is None for cell in cells)


@pytest.mark.ray
@pytest.mark.slow
def test_it_runs_and_compares_base_and_adapter(tmp_path: Path) -> None:
    folder = tmp_path / "notebooks"
    shutil.copytree(NOTEBOOKS, folder, ignore=shutil.ignore_patterns("my-workspace"))
    given = [word for name, value in PARAMETERS.items() for word in ("-p", name, str(value))]
    command = [sys.executable, "-m", "papermill", NAME, "result.ipynb", *given]
    done = subprocess.run(
        [*command, "--no-progress-bar"], cwd=folder, capture_output=True, text=True, timeout=400
    )
    assert done.returncode == 0, done.stderr[-4000:]
    cells = _cells(folder / "result.ipynb")
    compared = _output(cells, "compared = ")
    for words in ("field_accuracy", "95 % interval", "identical outputs"):
        assert words in compared
    scored = _output(cells, "pd.read_parquet(")
    assert "menu-" in scored
    assert "metric_field_accuracy" in scored
