"""`llmops init | schema | check`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Llmops


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


def test_check_tells_all_mistakes_at_once(
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
    assert llmops("check", "c.train.yaml", "optimizer.learning_rate=1e-4") == 0
    assert llmops("check", "c.train.yaml", "optimizer.learning_rate=fast") == 1
    assert "fast" in capsys.readouterr().err


def test_the_schema_is_json(llmops: Llmops, capsys: pytest.CaptureFixture[str]) -> None:
    assert llmops("schema") == 0
    assert "learning_rate" in json.dumps(json.loads(capsys.readouterr().out))
