"""The notebook about data, run from top to bottom as papermill runs it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.notebooks.executed import check_template, output, run_notebook

NAME = "07-your-data.ipynb"
PARAMETERS = {"model": "tiny-llama", "max_steps": 2, "max_length": 512}


def test_it_has_a_parameters_cell_and_no_outputs() -> None:
    check_template(NAME, PARAMETERS)


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.beside
def test_it_checks_looks_and_trains(tmp_path: Path) -> None:
    cells = run_notebook(NAME, PARAMETERS, tmp_path / "notebooks")
    assert "my-data/train.csv is valid for tiny-llama" in output(cells, "llmops.check(config)")
    assert "answr" in output(cells, "except llmops.ConfigError")
    assert "762 rows of my-data/train.csv" in output(cells, "preview = llmops.data_preview(")
    warnings = output(cells, "untidy.warnings")
    assert "duplicates" in warnings
    assert "leaks" in warnings
    assert "iVBORw0KGgo" in output(cells, "run.wait()")  # The first bytes of a PNG.
    assert "eval_loss" in output(cells, "run.evaluations()")
