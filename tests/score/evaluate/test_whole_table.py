"""Metrics of a whole table, from its parts, against scikit-learn and SciPy."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from llmops_kernel.config.models.score import ScoreConfig
from llmops_kernel.errors import DataError
from llmops_kernel.score.driver import table_metrics
from llmops_kernel.score.engines.protocol import Answer
from llmops_kernel.score.evaluate.row_scorer import RowScorer
from llmops_kernel.score.output_table import OutputColumns, ScoredRow, part_table
from llmops_kernel.score.prompts import PromptMaker
from llmops_kernel.score.sink import Sink
from llmops_kernel.tables.parts import TableRow

NAMES = ("a", "b", "c", "never")


def metrics_of(
    folder: Path, answers: list[Answer], references: list[Any], task: Any, *names: str
) -> tuple[dict[str, float], list[dict[str, float | None]]]:
    """Return the metrics of the table, and of each row, of answers in two parts."""
    config = ScoreConfig.model_validate(
        {
            "model": "/some/model",
            "input": "x",
            "prompt": {"template": "{text}", "reference": "right"},
            "task": task,
            "evaluation": {"metrics": [*names]},
        }
    )
    maker, scorer, sink = PromptMaker(config, {}), RowScorer(config), Sink(str(folder))
    rows: list[ScoredRow] = []
    for number, (answer, right) in enumerate(zip(answers, references, strict=True)):
        table_row = TableRow(number, {"text": "t", "right": right})
        row = ScoredRow(table_row, answer, reference=maker(table_row.values).reference)
        row.metrics = scorer.row(
            answer.text, row.reference, {}, label_scores=answer.scores, value=answer.value
        ).values
        rows.append(row)
    for index, part in enumerate((rows[:7], rows[7:])):
        sink.write_table(index, part_table(part, OutputColumns((), ()), None))
    return table_metrics(config, sink)[0], [row.metrics for row in rows]


def test_f1_of_labels_is_that_of_scikit_learn(tmp_path: Path) -> None:
    from sklearn.metrics import accuracy_score, f1_score

    given, right = [*"aabcabcabcba", "c"], [*"abbcabcccbaa", "c"]
    scores = dict.fromkeys(NAMES, 0.25)
    answers = [Answer(n, text=name, scores=scores) for n, name in enumerate(given)]
    found, rows = metrics_of(tmp_path, answers, right, "classify", "f1", "exact_match")
    each = f1_score(right, given, labels=NAMES, average=None, zero_division=0)
    assert found["f1"] == pytest.approx(each.mean())
    assert [found[f"f1_{name}"] for name in NAMES] == pytest.approx(list(each))
    matches = np.mean([row["exact_match"] for row in rows])
    assert matches == pytest.approx(accuracy_score(right, given))


def test_f1_of_several_labels_is_that_of_scikit_learn(tmp_path: Path) -> None:
    from sklearn.metrics import accuracy_score, f1_score
    from sklearn.preprocessing import MultiLabelBinarizer

    given = [["a"], ["a", "b"], [], ["c"], ["b", "c"], ["a"], ["b"], ["c", "a"], []]
    right = [["a"], ["b", "a"], [], ["b"], ["b"], ["a", "c"], ["b"], ["a", "c"], ["a"]]
    scores = dict.fromkeys(NAMES, 0.25)
    answers = [Answer(n, text=json.dumps(row), scores=scores) for n, row in enumerate(given)]
    found, rows = metrics_of(tmp_path, answers, right, "classify", "f1", "exact_match")
    binary = MultiLabelBinarizer(classes=NAMES)
    truth = binary.fit_transform(right), binary.transform(given)
    assert found["f1"] == pytest.approx(f1_score(*truth, average="macro", zero_division=0))
    matches = np.mean([row["exact_match"] for row in rows])
    assert matches == pytest.approx(accuracy_score(*truth))


def test_errors_and_correlations_of_numbers(tmp_path: Path) -> None:
    from scipy import stats
    from sklearn.metrics import mean_squared_error

    right = [1.0, 2.0, 2.0, 5.0, 3.0, 0.5, 4.0, 4.5, 1.5, None]
    given = [1.5, 1.0, 2.5, 4.0, 3.5, 1.0, 3.0, 5.5, 1.0, 9.0]
    answers = [Answer(n, value=value) for n, value in enumerate(given)]
    names = ("mse", "pearson", "spearman")
    found, rows = metrics_of(tmp_path, answers, right, "value", *names)
    pair = given[:-1], right[:-1]
    assert found["pearson"] == pytest.approx(stats.pearsonr(*pair).statistic)
    assert found["spearman"] == pytest.approx(stats.spearmanr(*pair).statistic)
    errors = [row["mse"] for row in rows]
    assert errors[-1] is None
    assert np.mean(errors[:-1]) == pytest.approx(mean_squared_error(*pair))
    with pytest.raises(DataError, match="'two' is not a number"):
        metrics_of(tmp_path, answers[:1], ["two"], "value", "pearson")


@pytest.mark.parametrize(
    ("name", "task"), [("f1", "generate"), ("mse", "embed"), ("retrieval", "generate")]
)
def test_a_metric_of_another_task_is_refused(tmp_path: Path, name: str, task: str) -> None:
    with pytest.raises(ValueError, match=r"set task\.type to"):
        metrics_of(tmp_path, [], [], task, name)
