"""The judge: a config of a second scoring, and numbers from its grades."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from llmops_kernel.config.models.score import ScoreConfig
from llmops_kernel.metrics.scores import FOLDER, grade_value
from llmops_kernel.score.engines.protocol import Answer
from llmops_kernel.score.evaluate.judge import Grades, judge_config
from llmops_kernel.score.output_table import ScoredRow, columns_of, part_table
from llmops_kernel.score.prompts import PromptMaker
from llmops_kernel.score.sink import METRICS, Sink
from llmops_kernel.tables.files import table_files
from llmops_kernel.tables.parts import TableRow
from llmops_kernel.tables.reading import divide, read_part

GRADES = ("good", "fair", "bad")
RUBRIC = "{prompt}\nAnswer: {output}\nExpected: {reference}\nDish: {dish}\nGrade it."


def config(**judge: Any) -> ScoreConfig:
    return ScoreConfig.model_validate(
        {
            "name": "tags",
            "model": "small",
            "input": "dishes.jsonl",
            "prompt": {"template": "Tags of {dish}?", "reference": "tag"},
            "engine": {"replicas": 2, "max_model_len": 512, "options": {"enforce_eager": True}},
            "evaluation": {
                "metrics": ["exact_match"],
                "judge": {"model": "large", "rubric": RUBRIC, "choices": GRADES} | judge,
            },
        }
    )


def test_the_judges_config_is_a_valid_scoring() -> None:
    made = judge_config(config(), output="s3://bucket/scores/")
    assert made.broken_rules() == []
    assert (made.name, made.model.id) == ("tags-judge", "large")
    assert (made.task.type, made.task.choices) == ("classify", GRADES)
    assert made.input.path == "s3://bucket/scores/part-*.parquet"
    assert made.output.url == "s3://bucket/scores/_judge"
    assert made.engine.replicas == 2
    # Made for the judged model.
    assert (made.engine.max_model_len, made.engine.options) == (None, {})
    assert made.evaluation.metrics == ()
    assert made.evaluation.judge.model == ""
    assert ScoreConfig.model_validate(made.model_dump(mode="json")) == made


def test_a_long_name_is_shortened() -> None:
    made = judge_config(config().model_copy(update={"name": "a" * 33 + "-tags"}), output="o")
    assert made.name == "a" * 33 + "-judge"


def test_the_rubric_is_filled_from_a_written_output(tmp_path: Path) -> None:
    rows = [TableRow(i, {"dish": f"soup {i}"}) for i in range(2)]
    scored = [ScoredRow(row, prompt=f"Tags of soup {row.number}?", reference="a") for row in rows]
    scored[0].answer = Answer(0, "vegan", 3, 1)
    scored[1].error = "too long"
    sink = Sink(str(tmp_path / "out"))
    sink.prepare()
    sink.write_table(0, part_table(scored, columns_of(rows), None))
    sink.write(METRICS, b"{}")
    made = judge_config(config(), output=sink.url)
    files = table_files(made.input.path, roots=(), format_name=made.input.format)
    table = read_part(divide(files, part_rows=10, limit=None).parts[0])
    maker = PromptMaker(made, {})
    assert maker(table.rows[0].values).prompt == [
        {
            "role": "user",
            "content": "Tags of soup 0?\nAnswer: vegan\nExpected: a\nDish: soup 0\nGrade it.",
        }
    ]
    with pytest.raises(Exception, match="column output is empty"):
        maker(table.rows[1].values)


def test_the_judges_own_output_is_no_part_of_the_judged_table(tmp_path: Path) -> None:
    out = Sink(str(tmp_path / "out"))
    rows = [TableRow(0, {"dish": "soup"})]
    table = part_table([ScoredRow(rows[0], prompt="p")], columns_of(rows), None)
    out.write_table(0, table)
    Sink(f"{out.url}/{FOLDER}").write_table(0, table)
    assert len(table_files(out.url, roots=())) == 1


@pytest.mark.parametrize(
    ("grade", "expected"),
    [("good", 1.0), ("fair", 0.5), ("bad", 0.0), ("great", None), (None, None)],
)
def test_a_grade_is_its_place(grade: str | None, expected: float | None) -> None:
    assert grade_value(grade, GRADES) == expected


def test_metrics_are_the_mean_place_and_shares_of_graded_rows() -> None:
    grades = Grades(GRADES)
    grades.add(["good", "good", "fair", None, "nonsense"])
    assert grades.ungraded == 2
    assert grades.metrics() == {
        "judge": pytest.approx(2.5 / 3),
        "judge_good": pytest.approx(2 / 3),
        "judge_fair": pytest.approx(1 / 3),
        "judge_bad": 0.0,
    }


def test_without_a_graded_row_there_is_no_metric() -> None:
    grades = Grades(GRADES)
    grades.add([None])
    assert grades.metrics() == {}


@settings(deadline=None)
@given(st.lists(st.sampled_from([*GRADES, None])), st.integers(0, 20))
def test_parts_add_up(labels: list[str | None], at: int) -> None:
    whole, first, second = Grades(GRADES), Grades(GRADES), Grades(GRADES)
    whole.add(labels)
    first.add(labels[:at])
    second.add(labels[at:])
    first = Grades.from_json(json.loads(json.dumps(first.to_json())))
    first.merge(second)
    assert first == whole


@pytest.mark.parametrize(
    ("judge", "path"),
    [
        ({"rubric": ""}, "evaluation.judge.rubric"),
        ({"rubric": "Is it good?"}, "evaluation.judge.rubric"),
        ({"choices": ["good"]}, "evaluation.judge.choices"),
        ({"choices": ["good", "good "]}, "evaluation.judge.choices"),
        ({"choices": ["a", "b", "a"]}, "evaluation.judge.choices"),
    ],
)
def test_a_judge_that_cannot_judge_is_refused(judge: dict[str, Any], path: str) -> None:
    with pytest.raises(ValidationError, match=path):
        config(**judge)


def test_without_a_model_there_is_no_judge_to_check() -> None:
    assert config(model="", rubric="", choices=[]).evaluation.judge.choices == ()
