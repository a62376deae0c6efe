"""`llmops.data_preview`: the same look at data as an object."""

from __future__ import annotations

from pathlib import Path

import pytest

import llmops_kernel as llmops


@pytest.fixture
def found(tmp_path: Path) -> llmops.api.DataPreview:  # type: ignore[name-defined]
    (tmp_path / "rows.jsonl").write_text('{"text": "a <b>"}\n{"text": "A  <b> "}\n{"text": "c"}\n')
    values = {"model": "tiny-llama", "data": "rows.jsonl"}
    return llmops.data_preview(values, workspace=tmp_path, max_length=8)


def test_facts_warnings_rows_and_html(found: llmops.api.DataPreview) -> None:  # type: ignore[name-defined]
    assert found.facts["rows"] == "3 rows of rows.jsonl"
    assert set(found.warnings) == {"duplicates"}
    assert [str(row).partition(":")[0] for row in found.rows] == ["row 1", "row 2", "row 3"]
    assert "«c<|end|>»" not in repr(found)  # the first token has none that predicts it
    assert "c«<|end|>»" in repr(found)
    assert "&lt;b&gt;" in found._repr_html_()
    assert found.to_dict()["train"]["num_duplicates"] == 1
    assert "c«<|end|>»" in repr(found.row(3))
    assert "&lt;|end|&gt;" in found.row(3)._repr_html_()
