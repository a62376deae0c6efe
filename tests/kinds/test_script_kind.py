"""What is submitted as a script, and what is refused before anything starts."""

from __future__ import annotations

import math
from array import array
from pathlib import Path

import pytest

from llmops_kernel.config.models.script import ScriptConfig
from llmops_kernel.config.models.section import RunConfig
from llmops_kernel.errors import ConfigError, SubmissionError
from llmops_kernel.kinds.reading import from_path, kind_of
from llmops_kernel.kinds.reading import from_text as read_text
from llmops_kernel.kinds.registry import kind_named, new_view
from llmops_kernel.kinds.script import SCRIPT, describe
from llmops_kernel.kinds.script_config import check_files, run_name
from llmops_kernel.metrics.events import StepEvent
from llmops_kernel.services.submission import from_config, from_text
from llmops_kernel.store.record import RunRecord
from llmops_kernel.views.columns import PackedRows, points_of


def test_the_kind_is_registered() -> None:
    assert kind_named("script") is SCRIPT
    assert SCRIPT.phases[-1] == "first_step"


def test_what_a_script_logs_has_columns_and_new_ones_pack_all_rows_again() -> None:
    def step(number: int, **values: float) -> StepEvent:
        return StepEvent(
            stream="1-worker-0",
            seq=number,
            time_s=float(number),
            step=number,
            values=values or None,
        )

    view = new_view("script", [step(1), step(2)])
    packed = PackedRows()
    assert packed.sync(view) == 0
    assert [column.name for column in packed.columns] == [column.name for column in SCRIPT.columns]
    generation = packed.generation
    view.apply([step(3, reward=0.5)])
    assert packed.sync(view) == 0
    assert packed.generation == generation + 1
    assert [packed.columns[-1].name, packed.columns[-1].label] == ["reward", "reward"]
    rows = array("f", packed.rows())
    width = len(packed.columns)
    assert [rows[0], rows[width], rows[2 * width]] == [1, 2, 3]
    assert math.isnan(rows[width - 1])
    assert rows[-1] == 0.5
    view.apply([step(4, reward=0.75)])
    assert packed.sync(view) == 3
    assert packed.generation == generation + 1
    assert points_of(view, "reward") == [(3, 0.5), (4, 0.75)]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("train.py", "script"),
        ("a.script.yaml", "script"),
        ("b/a.script.yml", "script"),
        ("a.train.yaml", "train"),
        ("notes.txt", "train"),
    ],
)
def test_the_kind_is_that_of_the_files_name(name: str, kind: str) -> None:
    assert kind_of(name).name == kind
    assert kind_of(Path("x") / name).name == kind


def test_the_kind_of_a_config_is_that_of_its_class() -> None:
    assert kind_of(ScriptConfig(script="a.py")) is SCRIPT
    with pytest.raises(SubmissionError, match="class RunConfig"):
        kind_of(RunConfig())


@pytest.mark.parametrize(
    ("file", "expected"),
    [("train.py", "train"), ("My_Train V2.py", "my-train-v2"), ("__.py", "script")],
)
def test_the_run_is_named_after_the_file(file: str, expected: str) -> None:
    assert run_name(Path(file)) == expected
    assert ScriptConfig(name=run_name(Path(file)), script=file).name == expected


def test_a_python_file_with_arguments(tmp_path: Path) -> None:
    path = tmp_path / "parts" / "train.py"
    path.parent.mkdir()
    path.write_text("")
    own = from_config(path, settings={"args": ["--lr", "1e-4"], "num_workers": 2})
    assert (own.kind, own.config.name) == (SCRIPT, "train")
    assert own.config.args == ("--lr", "1e-4")
    assert own.config.script == "train.py"
    assert own.workspace == path.parent
    wider = from_config(path, workspace=tmp_path)
    assert wider.config.script == "parts/train.py"
    assert wider.problems(tmp_path) == []


def test_a_script_config_is_read_with_overrides(tmp_path: Path) -> None:
    path = tmp_path / "a.script.yaml"
    path.write_text("script: train.py\nargs: [--steps, '3']\n")
    config = from_path(SCRIPT, path, ["num_workers=2", "resources.cpus=0.5"])
    assert (config.workers, config.resources.cpus, config.args) == (2, 0.5, ("--steps", "3"))
    line = from_path(SCRIPT, path, ["args=--steps 5 --note 'two words'"])
    assert line.args == ("--steps", "5", "--note", "two words")
    edited = from_text(path.read_text(), name="a.script.yaml", workspace=tmp_path, config_path=None)
    assert edited.kind is SCRIPT


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("script: t.py\nworkers: 2\n", "workers"),
        ("script: t.py\nmode: driver\nnum_workers: 2\n", "not on 2 workers"),
        ("script: t.py\nresources: {cpus: 2}\n", "no workers"),
        ("script: t.py\nenv: {HF_TOKEN: abc}\n", "HF_TOKEN"),
        ("args: [a]\n", "script: is missing"),
        ("script: t.py\nargs: --note 'two words\n", "no closing quotation"),
    ],
)
def test_mistakes_are_named(text: str, words: str) -> None:
    with pytest.raises(ConfigError) as raised:
        read_text(SCRIPT, text, name="x.script.yaml")
    assert words in str(raised.value)
    assert "abc" not in str(raised.value)


def test_files_are_checked_before_anything_starts(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("")
    assert check_files(ScriptConfig(script="train.py"), tmp_path) == []
    [missing] = check_files(ScriptConfig(script="trian.py"), tmp_path)
    assert "train.py" in missing.suggestion
    [outside] = check_files(ScriptConfig(script="../train.py"), tmp_path / "sub")
    assert "workspace" in outside.message
    [other] = check_files(ScriptConfig(script="train.sh"), tmp_path)
    assert "Python" in other.message


def test_one_line_says_what_runs() -> None:
    config = ScriptConfig(script="train.py", args=("--lr", "1e-4"), num_workers=2)
    record = RunRecord(
        run_id="r",
        name="r",
        created_s=0,
        cluster="local",
        kind="script",
        config=config.model_dump(mode="json"),
    )
    assert describe(record) == "train.py --lr 1e-4 · 2 workers"
