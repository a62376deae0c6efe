"""The notebook about the loop, run from top to bottom as papermill runs it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.notebooks.executed import check_template, output, run_notebook

NAME = "02-edit-and-compare.ipynb"
PARAMETERS = {
    "model": "tiny-llama",
    "learning_rate": 0.01,
    "other_rates": "0.0001",
    "max_steps": 3,
    "max_length": 512,
    "eval_rows": 4,
}


def test_it_has_a_parameters_cell_and_no_outputs() -> None:
    check_template(NAME, PARAMETERS)


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.beside
def test_it_changes_a_number_and_a_line_and_shows_both(tmp_path: Path) -> None:
    cells = run_notebook(NAME, PARAMETERS, tmp_path / "notebooks")
    for source in ("%%train my-edits", "first.resubmit(", "llmops.compare("):
        assert "iVBORw0KGgo" in output(cells, source), source  # The first bytes of a PNG.
    assert "learning_rate" in output(cells, "llmops.compare(")
    assert "best of 2 learning rates" in output(cells, "best.star()")
    difference = output(cells, "edited.diff(best)")
    assert "menu_hooks.py" in difference
    assert "Dish -> cuisine" in difference.replace("&gt;", ">")
    assert "menu-tags-" in output(cells, "to_pandas()")
