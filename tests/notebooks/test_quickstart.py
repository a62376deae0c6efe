"""The quickstart notebook, run from top to bottom as papermill runs it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.notebooks.executed import run_notebook

Cells = list[dict[str, Any]]
NAME = "01-quickstart.ipynb"
PARAMETERS = {
    "model": "tiny-llama",
    "method": "full",
    "learning_rate": 0.003,
    "max_steps": 8,
    "max_length": 512,
    "eval_rows": 2,
}


@pytest.fixture(scope="module")
def executed(tmp_path_factory: pytest.TempPathFactory) -> Cells:
    """The cells with their outputs; the cluster that is started is stopped with the session's
    home."""
    return run_notebook(NAME, PARAMETERS, tmp_path_factory.mktemp("notebooks") / "notebooks")


def _outputs(executed: Cells, source: str) -> dict[str, str]:
    """All outputs of the cells that contain the words, joined by MIME type."""
    found: dict[str, str] = {}
    for cell in executed:
        if source not in "".join(cell["source"]):
            continue
        for output in cell["outputs"]:
            for mime, text in output.get("data", {"text/plain": output.get("text", "")}).items():
                found[mime] = found.get(mime, "") + ("".join(text))
    return found


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.beside
@pytest.mark.parametrize("wait", ["run.wait()", "again.wait()"])
def test_waiting_ends_with_a_picture_and_a_table(executed: Cells, wait: str) -> None:
    shown = _outputs(executed, wait)
    picture = shown.get("image/png", "") + shown.get("text/html", "")
    assert "iVBORw0KGgo" in picture  # The first bytes of a PNG in base64.
    assert "<table" in shown["text/html"]


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.beside
def test_every_step_is_in_the_metrics(executed: Cells) -> None:
    shown = _outputs(executed, "run.metrics()")["text/html"]
    assert "loss" in shown
    assert f"<th>{PARAMETERS['max_steps']}</th>" in shown


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.beside
def test_the_second_run_shows_what_was_changed(executed: Cells) -> None:
    shown = "".join(_outputs(executed, "again.diff(run)").values())
    assert "learning_rate" in shown
    assert "menu_hooks.py" in shown
    compared = _outputs(executed, "llmops.compare(")
    assert "iVBORw0KGgo" in "".join(compared.values())
