"""The notebook about scripts, run from top to bottom as papermill runs it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.notebooks.executed import check_template, output, run_notebook

NAME = "05-your-script.ipynb"
PARAMETERS = {"num_workers": 2, "steps": 6, "learning_rate": 0.05}


def test_it_has_a_parameters_cell_and_no_outputs() -> None:
    check_template(NAME, PARAMETERS)


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.beside
def test_it_runs_and_ends_with_pictures_and_numbers(tmp_path: Path) -> None:
    cells = run_notebook(NAME, PARAMETERS, tmp_path / "notebooks")
    for source in ("run.wait()", "again.wait()", "ray_run.wait()"):
        assert "iVBORw0KGgo" in output(cells, source), source  # The first bytes of a PNG.
    assert "0.01" in output(cells, "again.diff(run)")
    assert "iVBORw0KGgo" in output(cells, "llmops.compare(")
    assert "first_step" in output(cells, "pd.DataFrame(")
    assert "tokens_per_second" in output(cells, "ray_run.metrics()")
