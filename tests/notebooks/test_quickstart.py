"""The quickstart notebook, run from top to bottom as papermill runs it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
NAME = "01-quickstart.ipynb"
PARAMETERS = {
    "model": "tiny-llama",
    "method": "full",
    "learning_rate": 0.003,
    "max_steps": 8,
    "max_length": 512,
    "eval_rows": 2,
}


def _cells(path: Path, kind: str) -> list[dict[str, Any]]:
    cells = json.loads(path.read_text())["cells"]
    return [cell for cell in cells if cell["cell_type"] == kind]


def test_it_has_a_parameters_cell_and_no_outputs() -> None:
    code = _cells(NOTEBOOKS / NAME, "code")
    tagged = [cell for cell in code if "parameters" in cell["metadata"].get("tags", ())]
    assert len(tagged) == 1
    for name in PARAMETERS:
        assert f"{name} = " in "".join(tagged[0]["source"])
    assert all(not cell["outputs"] and cell["execution_count"] is None for cell in code)


@pytest.fixture(scope="module")
def executed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The notebook with its outputs; the cluster it starts is stopped with the session's home."""
    folder = tmp_path_factory.mktemp("notebooks") / "notebooks"
    shutil.copytree(NOTEBOOKS, folder, ignore=shutil.ignore_patterns("my-workspace"))
    result = folder / "result.ipynb"
    given = [word for name, value in PARAMETERS.items() for word in ("-p", name, str(value))]
    command = [sys.executable, "-m", "papermill", NAME, result.name, *given, "--no-progress-bar"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stderr[-4000:]
    return result


def _outputs(executed: Path, source: str) -> dict[str, str]:
    """All outputs of the cells that contain the words, joined by MIME type."""
    found: dict[str, str] = {}
    for cell in _cells(executed, "code"):
        if source not in "".join(cell["source"]):
            continue
        for output in cell["outputs"]:
            for mime, text in output.get("data", {"text/plain": output.get("text", "")}).items():
                found[mime] = found.get(mime, "") + ("".join(text))
    return found


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.parametrize("wait", ["run.wait()", "again.wait()"])
def test_waiting_ends_with_a_picture_and_a_table(executed: Path, wait: str) -> None:
    shown = _outputs(executed, wait)
    picture = shown.get("image/png", "") + shown.get("text/html", "")
    assert "iVBORw0KGgo" in picture  # The first bytes of a PNG in base64.
    assert "<table" in shown["text/html"]


@pytest.mark.ray
@pytest.mark.slow
def test_every_step_is_in_the_metrics(executed: Path) -> None:
    shown = _outputs(executed, "run.metrics()")["text/html"]
    assert "loss" in shown
    assert f"<th>{PARAMETERS['max_steps']}</th>" in shown


@pytest.mark.ray
@pytest.mark.slow
def test_the_second_run_shows_what_was_changed(executed: Path) -> None:
    shown = "".join(_outputs(executed, "again.diff(run)").values())
    assert "learning_rate" in shown
    assert "menu_hooks.py" in shown
    compared = _outputs(executed, "llmops.compare(")
    assert "iVBORw0KGgo" in "".join(compared.values())
