"""`llmops init | schema | check`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from llmops_kernel.cli.runs.submit import print_advice
from llmops_kernel.services.gallery import EXAMPLES
from tests.cli.conftest import Llmops
from tests.configs import training_config_from_dict


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "workspace"
    place.mkdir()
    monkeypatch.chdir(place)
    return place


def test_a_new_config_is_right_as_soon_as_its_data_is_there(
    folder: Path, llmops: Llmops, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ("--model", "tiny-llama", "--data", "rows.jsonl", "--method", "full")
    assert llmops("init", "my.train.yaml", *arguments) == 0
    assert llmops("check", "my.train.yaml") == 1
    assert "rows.jsonl" in capsys.readouterr().err
    (folder / "rows.jsonl").write_text('{"text": "a b c"}\n' * 20)
    assert llmops("check", "my.train.yaml") == 0
    shown = capsys.readouterr().out
    assert "tiny-llama" in shown
    assert "full" in shown
    assert "20 rows of rows.jsonl were read, formatted and tokenised" in " ".join(shown.split())


def test_a_file_is_not_overwritten_unasked(
    folder: Path, llmops: Llmops, capsys: pytest.CaptureFixture[str]
) -> None:
    file = folder / "my.train.yaml"
    file.write_text("mine")
    assert llmops("init", "my.train.yaml") == 1
    assert "--force" in capsys.readouterr().err
    assert file.read_text() == "mine"
    assert llmops("init", "my.train.yaml", "--force") == 0
    assert file.read_text() != "mine"


def test_check_shows_all_mistakes_at_once(
    folder: Path, llmops: Llmops, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = ["model: tiny-llama", "data: rows.jsonl", "optimizer:", "  learning_rat: 1e-4"]
    (folder / "bad.train.yaml").write_text("\n".join([*lines, "seed: -1", ""]))
    assert llmops("check", "bad.train.yaml") == 1
    error = capsys.readouterr().err
    assert "bad.train.yaml:4" in error
    assert "learning_rate" in error
    assert "seed" in error


def test_overrides_are_checked_too(
    folder: Path, llmops: Llmops, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "rows.jsonl").write_text('{"text": "a b c"}\n')
    (folder / "c.train.yaml").write_text("model: tiny-llama\ndata: rows.jsonl\n")
    assert llmops("check", "c.train.yaml", "optimizer.learning_rate=1e-4", "--quick") == 0
    assert "tokenised" not in capsys.readouterr().out
    assert llmops("check", "c.train.yaml", "optimizer.learning_rate=fast") == 1
    assert "fast" in capsys.readouterr().err


def test_several_files_are_checked_and_json_names_each(
    folder: Path, llmops: Llmops, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "rows.jsonl").write_text('{"text": "a b c"}\n')
    (folder / "a.train.yaml").write_text("model: tiny-llama\ndata: rows.jsonl\n")
    (folder / "b.train.yaml").write_text("model: tiny-llama\ndata: rowz.jsonl\nsed: 1\n")
    (folder / "c.cluster.yaml").write_text("num_cpus: 2\n")
    assert llmops("check", "a.train.yaml", "c.cluster.yaml", "--quick") == 0
    shown = capsys.readouterr().out
    assert "a.train.yaml is valid" in shown
    assert "c.cluster.yaml is valid" in shown
    assert (
        llmops("check", "a.train.yaml", "b.train.yaml", "no.train.yaml", "--json", "--quick") == 1
    )
    answer = json.loads(capsys.readouterr().out)
    assert answer["valid"] is False
    assert [one["valid"] for one in answer["files"]] == [True, False, False]
    assert {p["path"] for p in answer["files"][1]["problems"]} == {"sed", "data.train"}
    assert answer["files"][2]["problems"][0]["message"] == "no such file"
    assert answer["files"][0]["effect"][0].startswith("Trains tiny-llama")


def test_a_warning_does_not_fail_the_check(
    folder: Path, llmops: Llmops, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "rows.jsonl").write_text('{"text": "a b c"}\n')
    lines = "model: tiny-llama\ndata: rows.jsonl\noptimizer: {warmup_steps: 5}\n"
    (folder / "a.train.yaml").write_text(lines)
    assert llmops("check", "a.train.yaml", "max_steps=4", "--quick") == 0
    shown = capsys.readouterr()
    assert "a.train.yaml is valid" in shown.out
    assert "5 warm-up steps do not fit into a run of max_steps=4" in " ".join(shown.err.split())
    assert llmops("check", "a.train.yaml", "max_steps=4", "report_to=[trackio]", "--json") == 0
    (file,) = json.loads(capsys.readouterr().out)["files"]
    assert [one["path"] for one in file["warnings"]] == ["optimizer.warmup_steps", "report_to"]
    assert "1 row of rows.jsonl was read, formatted and tokenised" in file["checked"]


def test_submit_prints_the_same_warning(capsys: pytest.CaptureFixture[str]) -> None:
    data = {"model": "tiny-llama", "data": "rows.jsonl", "optimizer": {"warmup_steps": 5}}
    print_advice(training_config_from_dict(data, ["max_steps=4"]))
    shown = " ".join(capsys.readouterr().err.split())
    assert shown.startswith("Warning: optimizer.warmup_steps: 5 warm-up steps do not fit")
    print_advice(training_config_from_dict(data))
    assert capsys.readouterr().err == ""


def test_the_schema_is_json(llmops: Llmops, capsys: pytest.CaptureFixture[str]) -> None:
    assert llmops("schema") == 0
    assert "learning_rate" in json.dumps(json.loads(capsys.readouterr().out))


def test_an_example_says_what_it_wrote_and_what_comes_next(
    folder: Path, llmops: Llmops, capsys: pytest.CaptureFixture[str]
) -> None:
    assert llmops("init", "--example", "script") == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "Wrote train.script.yaml, train.py, data/menu-train.txt." in shown
    assert "llmops submit train.script.yaml --follow" in shown
    assert (folder / "data" / "menu-train.txt").is_file()
    assert llmops("init", "--example", "chat", "--model", "tiny-llama") == 1
    assert "its own model" in capsys.readouterr().err
    assert llmops("init", "--help") == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in EXAMPLES)


def test_a_folder_is_all_of_its_configs_and_a_pipe_tells_warnings_from_problems(
    llmops: Llmops,
    folder: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (folder / "rows.jsonl").write_text('{"Question": "a", "Answer ": "b"}\n')
    head = "model: tiny-llama\noptimizer: {warmup_steps: 5}\n"
    (folder / "a.train.yaml").write_text(f"{head}data:\n  train: rows.jsonl\n")
    (folder / "b.train.yaml").write_text(f"{head}data:\n  train: nowhere.jsonl\n")
    (folder / "notes.yaml").write_text("not: ours\n")
    assert llmops("check", ".", "--quick", "max_steps=4") == 1
    printed = capsys.readouterr().err.splitlines()
    assert any(line.startswith("b.train.yaml:4: data.train: no such file") for line in printed)
    assert any('has only the keys "Answer ", Question' in line for line in printed)
    warned = [line for line in printed if ": warning: " in line]
    assert [line.split(": ")[0] for line in warned] == ["a.train.yaml:2", "b.train.yaml:2"], printed
    assert "b.train.yaml has 1 problem and 1 warning. Nothing was started." in printed
    assert llmops("check", "b.train.yaml", "--quick", "data.train=elsewhere.jsonl") == 1
    assert "data.train=elsewhere.jsonl: data.train: no such file" in capsys.readouterr().err
