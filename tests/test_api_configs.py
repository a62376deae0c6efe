"""`llmops.check` and `llmops.schema`: what the commands of that name do, as functions."""

from __future__ import annotations

from pathlib import Path

import pytest

import llmops_kernel as llmops
from llmops_kernel.errors import ConfigError


@pytest.fixture
def config(tmp_path: Path) -> Path:
    (tmp_path / "rows.jsonl").write_text('{"text": "a"}\n' * 4)
    path = tmp_path / "a.train.yaml"
    path.write_text("model: tiny-llama\ndata: rows.jsonl\n")
    return path


def test_a_valid_config_is_returned_resolved(config: Path) -> None:
    checked = llmops.check(config, overrides=["training.max_steps=7"], quick=True)
    assert (checked.model.id, checked.training.max_steps) == ("tiny-llama", 7)


def test_what_need_not_stop_a_run_is_a_python_warning(config: Path) -> None:
    with pytest.warns(UserWarning, match="3 of 4 rows .* repeat another one"):
        llmops.check(config)
    (config.parent / "hooks.py").write_text("def format_example(row):\n    return row['answer']\n")
    with pytest.raises(ConfigError, match=r"format_example .*row 1.*answer") as caught:
        llmops.check(config, overrides=["hooks.file=hooks.py"])
    assert [one.path for one in caught.value.problems] == ["hooks.file"]


def test_missing_files_and_unknown_keys_are_errors(config: Path, tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").unlink()
    with pytest.raises(ConfigError, match=r"rows\.jsonl"):
        llmops.check(config)
    with pytest.raises(ConfigError, match="max_step"):
        llmops.check(config, overrides=["training.max_step=7"])


def test_the_schema_describes_a_training_config() -> None:
    assert {"model", "data", "training"} <= set(llmops.schema()["properties"])
