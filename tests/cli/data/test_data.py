"""`llmops data`: in a pipe, as JSON, one row, and its errors."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.cli.conftest import Llmops
from tests.conftest import CACHE_VARIABLE

CONFIG = "model: tiny-llama\ndata: {train: rows.jsonl, max_length: 40}\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, llmops: Llmops) -> Path:
    monkeypatch.setenv("LLMOPS_CACHE", os.environ[CACHE_VARIABLE])  # the tiny model is made once
    place = tmp_path / "workspace"
    place.mkdir()
    monkeypatch.chdir(place)
    rows = [{"prompt": f"say {n}", "completion": f"{n}"} for n in range(8)]
    (place / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (place / "x.train.yaml").write_text(CONFIG)
    return place


def test_a_pipe_gets_figures_and_marked_rows(
    folder: Path, llmops: Llmops, capsys: pytest.CaptureFixture[str]
) -> None:
    assert llmops("data", "x.train.yaml", "data.max_length=32", "--show", "2") == 0
    shown = capsys.readouterr().out
    assert "8 rows of rows.jsonl" in shown
    assert "prompt_completion, chosen by format: auto" in shown
    assert "max_length 32 ---" in shown
    assert "<|user|>say 0<|end|><|assistant|>«0<|end|>»" in shown
    assert "\x1b" not in shown


def test_one_row_is_shown_whole_as_json(
    folder: Path, llmops: Llmops, capsys: pytest.CaptureFixture[str]
) -> None:
    assert llmops("data", "x.train.yaml", "--row", "3", "--json") == 0
    row = json.loads(capsys.readouterr().out)
    assert (row["number"], row["format"]) == (3, "prompt_completion")
    assert [one["text"] for one in row["pieces"] if one["kind"] == "loss"] == ["2", "<|end|>"]


@pytest.mark.parametrize("command", [["data"], ["check"]])
def test_a_config_with_a_mistake_ends_the_process_that_was_started_ahead(
    folder: Path, llmops: Llmops, command: list[str]
) -> None:
    (folder / "x.train.yaml").write_text(CONFIG + "sed: 1\n")
    assert llmops(*command, "x.train.yaml") == 1
    mine = [one.cmdline() for one in psutil.Process().children()]
    assert [line for line in mine if "llmops_kernel.train.data.preview" in line] == []


def test_a_broken_row_is_an_error_with_its_remedy(
    folder: Path, llmops: Llmops, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "rows.jsonl").write_text('{"text": "fine"}\n{"text": \n')
    assert llmops("data", "x.train.yaml") == 1
    error = capsys.readouterr().err
    assert "rows.jsonl, row 2: not valid JSON" in error
    assert "Try: each line must be one JSON object" in error


def test_evaluation_rows_need_a_source(
    folder: Path, llmops: Llmops, capsys: pytest.CaptureFixture[str]
) -> None:
    assert llmops("data", "x.train.yaml", "--eval") == 1
    assert "names no evaluation rows" in capsys.readouterr().err


def in_terminal(folder: Path, **env: str) -> str:
    """Return what the command prints where its output is a terminal."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "llmops_kernel.cli.main", "data", "x.train.yaml", "--row", "1"],
        cwd=folder,
        stdout=theirs,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "TERM": "xterm-256color", "COLUMNS": "80", **env},
    )
    os.close(theirs)
    shown = b""
    try:
        while chunk := os.read(ours, 65536):
            shown += chunk
    except OSError:  # the terminal is closed
        pass
    process.wait()
    os.close(ours)
    return shown.decode()


def test_a_terminal_gets_colours_and_no_color_gets_marks(folder: Path) -> None:
    coloured = in_terminal(folder)
    assert "\x1b[32m0\x1b[0m" in coloured
    assert "«" not in coloured
    plain = re.sub(r"\x1b\[[0-9;]*m", "", coloured)
    assert "<|user|>say 0<|end|><|assistant|>0<|end|>" in plain
    without = in_terminal(folder, NO_COLOR="1")
    assert "«0<|end|>»" in without
    assert "\x1b[32m" not in without
