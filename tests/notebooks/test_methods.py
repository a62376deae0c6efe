"""The notebook about methods, run from top to bottom as papermill runs it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.notebooks.executed import check_template, output, run_notebook

NAME = "03-methods.ipynb"
PARAMETERS = {"model": "tiny-llama", "max_steps": 3, "max_length": 512, "eval_rows": 4}
METHODS = ("full", "lora", "qlora")


def test_it_has_a_parameters_cell_and_no_outputs() -> None:
    check_template(NAME, PARAMETERS)


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.beside
def test_it_overlays_the_methods_and_says_what_was_measured(tmp_path: Path) -> None:
    cells = run_notebook(NAME, PARAMETERS, tmp_path / "notebooks")
    for source in ("runs[method].wait()", "plt.subplots(", "llmops.compare("):
        assert "iVBORw0KGgo" in output(cells, source), source  # The first bytes of a PNG.
    verified = output(cells, "start.verified")
    assert "nf4" in verified
    table = output(cells, "def of_run(")
    assert all(f">{method}</th>" in table for method in METHODS)
    assert re.search(r"\d\.\d\d GiB", table)
    said = output(cells, "def best(")
    for words in ("lowest loss", "least memory", "most tokens per second"):
        assert re.search(rf"(full|lora|qlora) \S+ (the )?{words} [^.]*\(", said), words
    assert said.count("qlora") >= 3
