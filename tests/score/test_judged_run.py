"""The answers of a score run graded by a second one, on a real cluster."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import llmops_kernel as llmops
from llmops_kernel.config.models.score import ScoreConfig
from llmops_kernel.score.evaluate.judge import Grades, judge_config
from tests.score.conftest import output_of, table_of

pytestmark = pytest.mark.ray
GRADES = ("good", "fair", "bad")


def test_each_answer_gets_its_grade(
    score: Callable[..., llmops.Run], cluster: llmops.Cluster, tmp_path: Path
) -> None:
    # The engine chooses the grade that its prompt names.
    texts = ["good"] * 150 + ["bad"] * 50
    rows: list[Any] = [{"id": f"r{n}", "text": text} for n, text in enumerate(texts)]
    judged = score([*rows, {"id": "broken"}])
    judged.wait(120)
    config = ScoreConfig.model_validate(
        judged.record.config
        | {
            "evaluation": {
                "judge": {"model": "tiny-llama", "rubric": "{output}", "choices": GRADES}
            }
        }
    )
    folder = output_of(judged)
    path = tmp_path / "workspace" / "judge.score.yaml"
    path.write_text(judge_config(config, output=str(folder)).model_dump_json())
    run = cluster.submit(path)
    run.wait(120)
    assert run.record.name == "plumbing-judge"
    graded = table_of(output_of(run))
    assert output_of(run) == folder / "_judge"
    assert [row["input_row_number"] for row in graded] == list(range(201))
    assert [row["label"] for row in graded] == [*texts, None]
    assert "column output is empty" in graded[-1]["error"]
    grades = Grades(GRADES)
    grades.add(row["label"] for row in graded)
    assert grades.metrics()["judge"] == 0.75
    assert grades.ungraded == 1
    # The judged table is as it was.
    assert len(table_of(folder)) == 201
    assert json.loads((folder / "_SUCCESS").read_text())["rows"] == 201
