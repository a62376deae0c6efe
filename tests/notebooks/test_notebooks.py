"""Each notebook after the quickstart, run from top to bottom as papermill runs it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.notebooks import test_quickstart
from tests.notebooks.executed import check_template, output, run_notebook

PNG = "iVBORw0KGgo"
"""Its first bytes in base64."""
TINY = {"model": "tiny-llama", "max_length": 512}
PARAMETERS: dict[str, dict[str, Any]] = {
    test_quickstart.NAME: test_quickstart.PARAMETERS,
    "02-edit-and-compare.ipynb": {
        **TINY,
        "learning_rate": 0.01,
        "other_rates": "0.0001",
        "max_steps": 3,
        "eval_rows": 4,
    },
    "03-methods.ipynb": {**TINY, "max_steps": 3, "eval_rows": 4},
    "04-score.ipynb": {**TINY, "max_steps": 2, "rows": 6},
    "05-your-script.ipynb": {"num_workers": 2, "steps": 6, "learning_rate": 0.05},
    "06-plan-before-you-pay.ipynb": {"num_workers": 32},
    "07-your-data.ipynb": {**TINY, "max_steps": 2},
    "08-two-tower.ipynb": {**TINY, "max_length": 32, "max_steps": 2, "dimensions": "8, 16"},
}


@pytest.mark.parametrize("name", PARAMETERS)
def test_it_has_a_parameters_cell_and_no_outputs(name: str) -> None:
    check_template(name, PARAMETERS[name])


def run(name: str, folder: Path) -> list[dict[str, Any]]:
    return run_notebook(name, PARAMETERS[name], folder / "notebooks")


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.beside
def test_a_number_and_a_line_are_changed_and_both_are_shown(tmp_path: Path) -> None:
    cells = run("02-edit-and-compare.ipynb", tmp_path)
    for source in ("%%train my-edits", "first.resubmit(", "llmops.compare("):
        assert PNG in output(cells, source), source
    assert "learning_rate" in output(cells, "llmops.compare(")
    assert "best of 2 learning rates" in output(cells, "best.star()")
    difference = output(cells, "edited.diff(best)")
    assert "menu_hooks.py" in difference
    assert "Dish -> cuisine" in difference.replace("&gt;", ">")
    assert "menu-tags-" in output(cells, "to_pandas()")


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.beside
def test_methods_are_overlaid_with_what_was_measured(tmp_path: Path) -> None:
    cells = run("03-methods.ipynb", tmp_path)
    for source in ("runs[method].wait()", "plt.subplots(", "llmops.compare("):
        assert PNG in output(cells, source), source
    assert "nf4" in output(cells, "start.verified")
    table = output(cells, "def of_run(")
    assert all(f">{method}</th>" in table for method in ("full", "lora", "qlora"))
    assert re.search(r"\d\.\d\d GiB", table)
    said = output(cells, "def best(")
    for words in ("lowest loss", "least memory", "most tokens per second"):
        assert re.search(rf"(full|lora|qlora) \S+ (the )?{words} [^.]*\(", said), words
    assert said.count("qlora") >= 3


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.beside
def test_scores_of_base_and_adapter_are_compared(tmp_path: Path) -> None:
    cells = run("04-score.ipynb", tmp_path)
    compared = output(cells, "compared = ")
    for words in ("field_accuracy", "95 % interval", "identical outputs"):
        assert words in compared
    scored = output(cells, "pd.read_parquet(")
    assert "menu-" in scored
    assert "metric_field_accuracy" in scored


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.beside
def test_a_script_ends_with_pictures_and_numbers(tmp_path: Path) -> None:
    cells = run("05-your-script.ipynb", tmp_path)
    for source in ("run.wait()", "again.wait()", "ray_run.wait()"):
        assert PNG in output(cells, source), source
    assert "0.01" in output(cells, "again.diff(run)")
    assert PNG in output(cells, "llmops.compare(")
    assert "first_step" in output(cells, "pd.DataFrame(")
    assert "tokens_per_second" in output(cells, "ray_run.metrics()")


@pytest.mark.slow
@pytest.mark.beside
def test_ubers_statements_are_derived(tmp_path: Path) -> None:
    cells = run("06-plan-before-you-pay.ipynb", tmp_path)
    offloaded = re.search(r"(\d+)% less", output(cells, "offload_optimizer=true"))
    flash = re.search(r"(\d+)% less", output(cells, "model.attention=eager"))
    assert offloaded is not None
    assert flash is not None
    assert 34 <= int(offloaded[1]) <= 42
    assert int(flash[1]) >= 50
    factors = re.findall(r"(\d\.\d) x", output(cells, "plan_grid("))
    assert 2 <= max(map(float, factors)) <= 7
    assert PNG in output(cells, "fastest=True")
    assert output(cells, "published = ").count("KempnerForge") >= 2


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.beside
def test_data_of_ones_own_are_checked_looked_at_and_trained_on(tmp_path: Path) -> None:
    cells = run("07-your-data.ipynb", tmp_path)
    assert "my-data/train.csv is valid for tiny-llama" in output(cells, "llmops.check(config)")
    assert "answr" in output(cells, "except llmops.ConfigError")
    assert "762 rows of my-data/train.csv" in output(cells, "preview = llmops.data_preview(")
    warnings = output(cells, "untidy.warnings")
    assert "duplicates" in warnings
    assert "leaks" in warnings
    assert PNG in output(cells, "run.wait()")
    assert "eval_loss" in output(cells, "run.evaluations()")


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.beside
def test_vectors_are_trained_with_mined_negatives_and_compared(tmp_path: Path) -> None:
    cells = run("08-two-tower.ipynb", tmp_path)
    for source in ("first.wait()", "second.wait()", "plt.show()"):
        assert PNG in output(cells, source), source
    assert "eval_recall@10_dim8" in output(cells, "before_and_after")
    assert "dish-mined.jsonl: 762 rows with" in output(cells, "llmops.mine(")
    compared = output(cells, "compared = ")
    for words in ("recall@10_dim16", "95 % interval"):
        assert words in compared, words
    assert "queries have their dish among" in output(cells, "change = ")
    assert output(cells, "asked = ").count("; ") >= 6
