"""Score runs on a real Ray cluster: what comes out, and what a broken row or output does."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import llmops_kernel as llmops
from tests.costs import assert_costs_one_node
from tests.score.conftest import numbered, output_of, table_of, write_workspace
from tests.waiting import until

Score = Callable[..., llmops.Run]
pytestmark = pytest.mark.ray


def test_every_row_comes_out_once_in_order_with_its_metrics(score: Score) -> None:
    run = score(numbered(1050))
    run.wait(120)
    folder = output_of(run)
    rows = table_of(folder)
    assert [row["id"] for row in rows] == [f"r{n}" for n in range(1050)]
    assert [row["row_number"] for row in rows] == list(range(1050))
    assert all(row["output"] == row["text"] == row["reference"] for row in rows)
    assert {row["metric_exact_match"] for row in rows} == {1.0}
    assert json.loads((folder / "_SUCCESS").read_text())["rows"] == 1050
    assert len(pd.read_parquet(folder)) == 1050, "no other file looks like a part"
    summary = json.loads((folder / "_metrics.json").read_text())
    assert (summary["rows"], summary["errors"]) == (1050, 0)
    assert summary["metrics"] == {"exact_match": 1.0}
    assert summary["output_tokens"] == 2100
    assert run.view.progress is not None
    assert (run.view.progress.done, run.view.progress.total) == (1050, 1050)
    assert_costs_one_node(run)


def test_broken_rows_get_an_error_and_the_others_an_answer(score: Score) -> None:
    lines: list[Any] = [
        {"id": "good", "text": "fine"},
        {"id": "no text"},
        {"id": "a number", "text": 7},
        {"id": "a list of lists", "text": {"a": 1}},
        {"id": "empty", "text": ""},
        {"id": "fails", "text": "[fail]"},
        "{not json",
        '{"id": "bad", "text": "\\ud800"}',
        {"id": 9, "text": "the key has another type"},
    ]
    run = score(lines)
    run.wait(120)
    rows = table_of(output_of(run))
    errors = [row["error"] for row in rows]
    assert len(rows) == len(lines)
    assert errors[0] is None
    assert "no column text" in errors[1]
    assert rows[2]["output"] == "7"
    assert "dict is not a text" in errors[3]
    assert "prompt is empty" in errors[4]
    assert "this row fails" in errors[5]
    assert "row 6 is not JSON" in errors[6]
    assert rows[6]["input_raw"] == "{not json"
    assert "half of a character (\\ud800)" in errors[7]
    assert (rows[8]["id"], json.loads(rows[8]["input_raw"])["id"]) == ("9", 9)
    assert run.view.state == "SUCCEEDED"
    assert "6 of 9 rows could not be scored" in run.view.message


def test_an_engine_without_gpus_computes_with_all_cores_of_its_node(score: Score) -> None:
    run = score([{"id": "a", "text": "[threads]"}])
    run.wait(120)
    (row,) = table_of(output_of(run))
    assert row["output"] == str(len(os.sched_getaffinity(0)))  # Ray would give it 1.


@pytest.mark.parametrize(
    ("settings", "message", "remedy"),
    [
        ({"input.key": "nmae"}, "no column 'nmae'", "input.key"),
        ({"prompt.template": "{nmae}"}, "there is no column nmae", "prompt"),
        ({"engine.type": "instant:NoEngine"}, "NoEngine", "engine"),
        ({"output.url": "/dev/null/x"}, "/dev/null/x cannot be written", "output.url"),
        ({"model.adapter": "memory://nowhere"}, "nowhere has no config.json", "adapter"),
        ({"model.adapter": "/nowhere"}, "adapter /nowhere does not exist", "model.run"),
    ],
)
def test_what_cannot_work_is_said_once(
    score: Score, settings: dict[str, Any], message: str, remedy: str
) -> None:
    run = score(numbered(5), **settings)
    run.wait(120, raise_on_failure=False)
    assert run.view.state == "FAILED"
    assert message in run.view.message
    assert remedy in run.view.remedy
    assert len(run.view.failures) == 1


def test_stopped_it_goes_on_where_it_was(score: Score) -> None:
    run = score(numbered(3000), **{"engine.options": {"step_s": 0.05}})
    until(lambda: (run.view.last_step or 0) >= 300 and run.state == "RUNNING")
    run.stop()
    run.wait(60, raise_on_failure=False)
    assert run.view.state == "STOPPED"
    assert "of 3,000 rows are scored" in run.view.message
    finished = {path.name: path.stat().st_mtime_ns for path in output_of(run).glob("part-*")}
    assert 3 <= len(finished) < 30
    assert not (output_of(run) / "_SUCCESS").exists()
    run.retry()
    run.wait(120)
    rows = table_of(output_of(run))
    assert [row["id"] for row in rows] == [f"r{n}" for n in range(3000)]
    now = {path.name: path.stat().st_mtime_ns for path in output_of(run).glob("part-*")}
    untouched = [name for name, stamp in finished.items() if now[name] == stamp]
    assert len(untouched) >= len(finished) - 2, "only the last, not noted yet, are done again"


def test_a_changed_input_is_not_mixed(score: Score, tmp_path: Path) -> None:
    source = tmp_path / "outside.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in numbered(2000)))
    settings = {"input.path": str(source), "engine.options": {"step_s": 0.05}}
    run = score(numbered(1), **settings)
    until(lambda: (run.view.last_step or 0) >= 200)
    run.stop()
    run.wait(60, raise_on_failure=False)
    with source.open("a") as file:
        file.write('{"id": "new", "text": "new"}\n')
    run.retry()
    run.wait(60, raise_on_failure=False)
    assert "input has changed" in run.view.message


def test_the_next_job_finds_the_engine_loaded(cluster: llmops.Cluster, tmp_path: Path) -> None:
    path = write_workspace(tmp_path / "workspace", numbered(50))
    details = []
    for _ in range(2):
        run = cluster.submit(path, overrides={"engine.options": {"load_s": 3.0}})
        run.wait(120)
        details.append({span.name: span.detail for span in run.view.phases()}["engine"])
    assert details[0].startswith("loaded in 3")
    assert details[1] == "it was loaded already"


def test_the_output_is_the_folder_that_the_config_names(score: Score, tmp_path: Path) -> None:
    run = score(numbered(20), **{"output.url": str(tmp_path / "elsewhere")})
    run.wait(120)
    assert run.view.outputs[-1].path == str(tmp_path / "elsewhere")
    assert len(table_of(tmp_path / "elsewhere")) == 20


def test_a_judge_grades_the_answers(score: Score) -> None:
    rows = [{"id": n, "text": "good" if n % 4 else "bad"} for n in range(120)]
    rows.append({"id": 120, "text": "[fail]"})  # Without an answer there is nothing to grade.
    judge = {"model": "tiny-qwen2", "rubric": "Is {output} a fine answer?"}
    judge["choices"] = ["good", "bad"]  # type: ignore[assignment]
    run = score(rows, **{"evaluation.judge": judge})
    run.wait(120)
    metrics = run.view.metrics
    assert metrics["judge"] == pytest.approx(0.75)
    assert metrics["judge_bad"] == pytest.approx(0.25)
    graded = table_of(output_of(run) / "_judge")
    assert [row["row_number"] for row in table_of(output_of(run))] == list(range(121))
    assert [row["input_row_number"] for row in graded] == list(range(121))
    # The engine chooses the grade that its prompt names.
    assert [row["label"] for row in graded] == [*(row["text"] for row in rows[:120]), None]
    assert "column output is empty" in graded[120]["error"]
    assert json.loads((output_of(run) / "_SUCCESS").read_text())["rows"] == 121


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 64 KiB; `remount` gives it more."""
    folder = tmp_path / "disk"
    folder.mkdir()
    line = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)]
    if subprocess.run(line, capture_output=True).returncode:
        pytest.skip("a file system of its own needs root")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_full_disk_loses_nothing(score: Score, small_disk: Path) -> None:
    rows = numbered(2000, text="a rather long text of number {n}")
    run = score(rows, **{"output.url": str(small_disk / "out")})
    run.wait(120, raise_on_failure=False)
    assert run.view.state == "FAILED"
    assert "No space left on device" in run.view.message
    assert "free some disk space" in run.view.remedy
    finished = len(list((small_disk / "out").glob("part-*")))
    assert 0 < finished < 20
    subprocess.run(["mount", "-o", "remount,size=64m", str(small_disk)], check=True)
    run.retry()
    run.wait(120)
    found = table_of(small_disk / "out")
    assert [row["id"] for row in found] == [f"r{n}" for n in range(2000)]
