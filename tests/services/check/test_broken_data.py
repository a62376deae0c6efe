"""Broken data sets, each told by Check before a run exists: in one sentence, with what to do."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from llmops_kernel.config.assist.diagnose import examine
from llmops_kernel.config.assist.file_kinds import TRAIN
from llmops_kernel.config.problems import Problem
from llmops_kernel.services.check import CloseCheck, check_closely
from llmops_kernel.services.data_process import Stop
from llmops_kernel.store.preview_job import PreviewJob, PreviewLine
from llmops_kernel.train.data.check import checked
from tests.messages import missing
from tests.train.data.preview.test_broken_data import FINE, HOOK, REFUSED, SUSPECT, Rows, lines
from tests.train.data.preview.test_work import chat


def here(
    job: PreviewJob, *, timeout_s: float, progress: Callable[[str], None], stop: Stop | None
) -> PreviewLine:
    """Do what the process of a check does in this one."""
    return PreviewLine(kind="checked", check=checked(job, progress))


def check(folder: Path, **sections: Any) -> tuple[list[Problem], CloseCheck]:
    """Check a config as the command line and Lab do; return all problems, and the rest."""
    config = {"model": "tiny-llama", "data": {"train": "train.jsonl"}, **sections}
    found = examine(TRAIN, json.dumps(config), folder=folder, with_files=True)
    assert found.config is not None, found.problems
    closely = check_closely(found.config, folder, problems=found.problems, run=here)
    return [*found.problems, *closely.problems], closely


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_trained_on_is_one_problem(tmp_path: Path, name: str) -> None:
    file, content, sections, expected = REFUSED[name]
    (tmp_path / "hooks.py").write_text(HOOK)
    if file == "eval.jsonl":
        (tmp_path / "train.jsonl").write_bytes(lines(chat("q", "a")))
    if callable(content):
        content(tmp_path / file)
    else:
        (tmp_path / file).write_bytes(content)
    train = file if file.startswith("train.") else "train.jsonl"
    data = {"train": train} | sections.get("data", {})
    (problem,), closely = check(tmp_path, **{**sections, "data": data})
    said = str(problem)
    # What the check of the files finds it says itself (config/test_broken_files.py).
    assert not closely.problems or re.search(expected, said), said
    assert problem.path == ("data.eval" if file == "eval.jsonl" else "data.train")
    assert problem.suggestion
    assert "\n" not in said
    assert "Traceback" not in said
    assert not any(train in note for note in closely.notes) or file == "eval.jsonl"


# Rows of training, rows of evaluation, what the one warning says.
MORE_SUSPECT: dict[str, tuple[Rows, Rows, str]] = {
    "formats are mixed": (
        *([*FINE, {"text": "t"}], []),
        r"the rows have several formats: prompt_completion \(4 rows\), text \(1 row\);",
    ),
    "answer is empty": (
        *([*FINE, chat("q", " ")], []),
        r"1 of 5 rows have no answer of the assistant: row 5; write",
    ),
    "evaluation repeats itself": (
        *(FINE, [chat("n", "new"), chat("n", "new")]),
        r"^data\.eval: 1 of 2 rows \(50\.0 %\) repeat another one: rows 1, 2",
    ),
}


@pytest.mark.parametrize("name", [*SUSPECT, *MORE_SUSPECT])
def test_what_trains_and_should_not_is_a_warning(tmp_path: Path, name: str) -> None:
    if name in SUSPECT:
        train, held_out, _, expected = SUSPECT[name]
    else:
        train, held_out, expected = MORE_SUSPECT[name]
    (tmp_path / "train.jsonl").write_bytes(lines(*train))
    (tmp_path / "eval.jsonl").write_bytes(lines(*held_out))
    data = {"train": "train.jsonl", "max_length": 40}
    problems, closely = check(
        tmp_path, data=data | ({"eval": "eval.jsonl"} if held_out else {}), output=str(tmp_path)
    )
    told = [*problems, *closely.warnings]
    found = [one for one in told if re.search(expected.removesuffix("$"), str(one))]
    assert len(found) == 1, told
    assert found[0].suggestion
    assert [bool(problems)] == [name == "no answers"], "only a run that would fail is a problem"


def test_sound_data_is_told_in_notes_only(tmp_path: Path) -> None:
    (tmp_path / "train.jsonl").write_bytes(lines(*FINE))
    problems, closely = check(tmp_path, output=str(tmp_path))
    assert (problems, closely.warnings) == ([], [])
    assert missing(closely.notes[0], "4 rows", "train.jsonl", "tokenised") == []


def test_each_of_several_sources_is_checked(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(lines(*FINE))
    (tmp_path / "b.jsonl").write_bytes(lines(*FINE, FINE[0]))
    (tmp_path / "c.parquet").write_bytes(b"none")
    (tmp_path / "eval.jsonl").write_bytes(lines(FINE[1]))
    train = ["a.jsonl", {"path": "b.jsonl", "weight": 2}, "c.parquet"]
    problems, closely = check(tmp_path, data={"train": train, "eval": "eval.jsonl"})
    assert [one.path for one in problems] == ["data.train.2.path"]
    assert [one.path for one in closely.warnings] == ["data.train.1.path", "data.eval"]
    assert missing(closely.warnings[1].message, "1 row", "evaluation") == []
