"""The process that looks at data: its answer, its errors, and its end."""

from __future__ import annotations

import os
from pathlib import Path

import psutil
import pytest

from llmops_kernel.errors import ConfigError, DataError
from llmops_kernel.services.data_preview import job_of, preview, preview_row

CONFIG = "model: tiny-llama\ndata: {train: rows.jsonl, max_length: 16}\n"


@pytest.fixture
def config(tmp_path: Path) -> Path:
    (tmp_path / "rows.jsonl").write_text('{"text": "a b c"}\n{"text": "second row of rows"}\n')
    (tmp_path / "x.train.yaml").write_text(CONFIG)
    return tmp_path / "x.train.yaml"


def test_a_config_is_looked_at_in_another_process(config: Path) -> None:
    (config.parent / "loud.py").write_text(
        "print('a hook that prints')\ndef format_example(row):\n    return row['text']\n"
    )
    found = preview(job_of(config, overrides=["hooks.file=loud.py"]))
    assert (found.model, found.train.total_rows, found.train.num_split) == ("tiny-llama", 2, 1)
    assert found.has_hook


def test_a_hook_may_ask_transformers_for_a_model(config: Path) -> None:
    (config.parent / "models.py").write_text(
        "def format_example(row):\n"
        "    from transformers import LlamaConfig, LlamaForCausalLM\n"
        "    LlamaForCausalLM(LlamaConfig(hidden_size=8, intermediate_size=8, vocab_size=8,\n"
        "        num_hidden_layers=1, num_attention_heads=1, num_key_value_heads=1))\n"
        "    return row['text']\n"
    )
    found = preview(job_of(config, overrides=["hooks.file=models.py"]))
    assert found.train.total_rows == 2


def test_an_error_arrives_as_it_was_raised(config: Path) -> None:
    with pytest.raises(DataError, match=r"rows\.jsonl has no row 3: the run uses 2") as caught:
        preview_row(job_of(config), 3)
    assert "from 1 to 2" in caught.value.remedy


def test_a_slow_hook_is_ended_with_all_that_it_started(config: Path) -> None:
    folder = config.parent
    (folder / "slow.py").write_text(
        "import subprocess, sys\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        f"with open({str(folder / 'pid')!r}, 'w') as file: file.write(str(child.pid))\n"
        "import time; time.sleep(600)\n"
    )
    job, given = job_of(config, overrides=["hooks.file=slow.py"]), 3
    while not (folder / "pid").exists():  # on a busy machine the process starts slowly
        with pytest.raises(DataError, match=f"not read and tokenised within {given} s") as caught:
            preview(job, timeout_s=given)
        assert "--rows" in caught.value.remedy
        given *= 4
    pid = int((folder / "pid").read_text())
    assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == "zombie"


def test_a_config_of_another_kind_has_no_rows_to_show(tmp_path: Path) -> None:
    (tmp_path / "x.script.yaml").write_text("script: train.py\n")
    (tmp_path / "train.py").write_text("")
    with pytest.raises(ConfigError, match="is not a training config"):
        job_of(tmp_path / "x.script.yaml")


def test_relative_paths_start_beside_the_config(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(os.sep)
    assert job_of(config).workspace == str(config.parent.resolve())
    assert job_of({"model": "tiny-llama", "data": "rows.jsonl"}).workspace == os.sep


def test_all_mistakes_of_the_config_are_reported(config: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        job_of(config, overrides=["seed=-1", "data.max_lenght=4"])
    assert {one.path for one in caught.value.problems} == {"seed", "data.max_lenght"}


def test_a_preview_says_that_it_asks_the_hub(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    said: list[str] = []
    with pytest.raises(DataError, match="cannot be loaded from the hub"):
        preview(job_of(config, overrides=["data.train=nobody/rows"]), progress=said.append)
    (line,) = said
    assert "nobody/rows" in line
