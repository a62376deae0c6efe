"""The notebook about scoring, run from top to bottom as papermill runs it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.notebooks.executed import check_template, output, run_notebook

NAME = "04-score.ipynb"
PARAMETERS = {"model": "tiny-llama", "max_steps": 2, "max_length": 512, "rows": 6}


def test_it_has_a_parameters_cell_and_no_outputs() -> None:
    check_template(NAME, PARAMETERS)


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.beside
def test_it_runs_and_compares_base_and_adapter(tmp_path: Path) -> None:
    cells = run_notebook(NAME, PARAMETERS, tmp_path / "notebooks")
    compared = output(cells, "compared = ")
    for words in ("field_accuracy", "95 % interval", "identical outputs"):
        assert words in compared
    scored = output(cells, "pd.read_parquet(")
    assert "menu-" in scored
    assert "metric_field_accuracy" in scored
