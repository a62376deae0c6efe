"""`llmops plan`: text, a table of what-ifs, JSON, exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import call
from tests.metrics.test_flops import CONFIGS


@pytest.fixture
def config(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows.jsonl").write_text('{"text": "one"}\n')
    (tmp_path / "llama").mkdir()
    (tmp_path / "llama" / "config.json").write_text(json.dumps(CONFIGS["Llama-2-7B"]))
    (tmp_path / "big.train.yaml").write_text(
        "model: llama\n"
        "data: {train: rows.jsonl, max_length: 4096}\n"
        "method: full\n"
        "parallelism: {strategy: zero2, num_workers: 8, gradient_checkpointing: true}\n"
        "training: {micro_batch_size: 1, global_batch_size: 64, max_steps: 500}\n"
    )
    return "big.train.yaml"


def test_it_says_what_fits_and_what_was_assumed(
    config: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call("plan", config, "--cluster", "gcp-h100") == 0
    text = capsys.readouterr().out
    for words in ("8 x H100 SXM", "6.74 billion weights", "fits", "tokens/s", "500 steps:", "MFU"):
        assert words in text
    assert "not learned from runs" in text


def test_what_does_not_fit_is_exit_code_1(config: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("plan", config, "--cluster", "spot", "parallelism.strategy=ddp") == 1
    assert "does not fit" in capsys.readouterr().out


def test_what_ifs_are_a_table(config: str, capsys: pytest.CaptureFixture[str]) -> None:
    what_if = ["--what-if", "parallelism.strategy=zero3,training.micro_batch_size=2"]
    assert call("plan", config, "--cluster", "gcp-h100", *what_if, "--fastest") == 0
    text = capsys.readouterr().out
    assert "strategy=zero3, micro_batch_size=2" in text
    assert "fastest:" in text


def test_json_has_plain_numbers(config: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("plan", config, "--cluster", "gcp-h100", "--json") == 0
    (plan,) = json.loads(capsys.readouterr().out)["plans"]
    assert plan["params"] == 6_738_415_616
    assert plan["fits"] is True
    assert plan["memory_total"] == pytest.approx(sum(plan["memory"].values()))
    assert plan["speed"]["tokens"] == 64 * 4096


def test_mistakes_are_named(config: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("plan", config, "--device", "Z9000") == 1
    assert "Z9000" in capsys.readouterr().err
    assert call("plan", config, "--what-if", "parallelism.strategie=zero3") == 1
    assert "parallelism.strategie" in capsys.readouterr().err
    assert call("plan", "nothing.train.yaml") != 0
