"""What is refused before an engine is loaded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from llmops_kernel.config.models.score.config import ScoreConfig
from llmops_kernel.errors import DataError
from llmops_kernel.score.setup import open_table
from llmops_kernel.store.record.spec import RunSpec

HOOKS = """
import json
def score_row(prediction, reference, row):
    return {"items": len(json.loads(prediction))}
"""


def opened(folder: Path, rows: list[Any], **evaluation: Any) -> tuple[str, ...]:
    """Return the names of the metrics that the output has columns for."""
    source = folder / "rows.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "hooks.py").write_text(HOOKS)
    config = {
        "model": "tiny-llama",
        "input": str(source),
        "prompt": {"template": "{text}", "reference": "tags"},
        "evaluation": evaluation,
        "hooks": str(folder / "hooks.py"),
    }
    spec = RunSpec(run_id="r", attempt=1, config=config, run_root="", submitted_s=0.0)
    return open_table(spec, ScoreConfig.model_validate(config)).columns.metrics


def test_a_hook_that_needs_an_answer_has_its_column(tmp_path: Path) -> None:
    rows = [{"text": "soup", "tags": '["vegan"]'}]
    assert opened(tmp_path, rows, metrics=["exact_match"]) == ("exact_match", "items")


def test_a_context_that_no_row_has_is_refused_at_once(tmp_path: Path) -> None:
    rows = [{"text": "soup", "tags": "[]"}] * 3
    with pytest.raises(DataError, match=r"first 3 rows can be measured.*'context'") as error:
        opened(tmp_path, rows, metrics=["grounded"])
    assert "evaluation.grounded.context" in error.value.remedy


def test_some_rows_without_a_context_are_not(tmp_path: Path) -> None:
    rows = [{"text": "a", "tags": "[]"}, {"text": "b", "tags": "[]", "context": "b"}]
    assert "grounded_support" in opened(tmp_path, rows, metrics=["grounded"])
