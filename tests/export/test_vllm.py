"""`--to vllm`: the folder and its command line; vLLM gets it in `test_served_answers.py`."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from pathlib import Path

import pytest

from tests.export.conftest import Store


def started(folder: Path, *more: str, **env: str) -> list[str]:
    """Run serve.sh from elsewhere with a command that prints its arguments; return them."""
    done = subprocess.run(
        [str(folder / "serve.sh"), *more],
        capture_output=True,
        text=True,
        cwd="/",
        env={**os.environ, "VLLM_SERVE": "printf %s\\n", **env},
        check=True,
    )
    return done.stdout.splitlines()


def option(words: list[str], name: str) -> str:
    return words[words.index(name) + 1]


def test_merged_weights_are_served_on_this_machine_only(
    store: Store, adapter: Path, tmp_path: Path
) -> None:
    run = store.add("adding-1", adapter, data={"train": "data/train.jsonl", "max_length": 128})
    done = store.export(run, tmp_path / "my models", to="vllm", name="adder", check=0)
    words = started(tmp_path / "my models")
    assert words[0] == "."
    assert done.notes[-1].startswith("vLLM was not started")
    assert option(words, "--served-model-name") == "adder"
    assert option(words, "--host") == "127.0.0.1"
    assert option(words, "--port") == "8000"
    assert option(words, "--dtype") == "float32"
    assert option(words, "--max-model-len") == "192"  # 128 trained, 64 answered.
    assert option(words, "--chat-template") == "chat_template.jinja"
    assert "--enable-lora" not in words
    changed = started(tmp_path / "my models", "--seed", "1", PORT="9000", MAX_MODEL_LEN="256")
    assert option(changed, "--port") == "9000"
    assert option(changed, "--max-model-len") == "256"
    assert changed[-2:] == ["--seed", "1"]
    assert shlex.split(done.command.splitlines()[0]) == [str(tmp_path / "my models" / "serve.sh")]


def test_its_processes_meet_on_this_machine_only_unless_told_otherwise(
    store: Store, adapter: Path, tmp_path: Path
) -> None:
    store.export(store.add("a", adapter), tmp_path / "out", to="vllm", check=0)
    shown = started(tmp_path / "out", VLLM_SERVE="bash -c env")
    assert {"VLLM_HOST_IP=127.0.0.1", "GLOO_SOCKET_IFNAME=lo", "NCCL_SOCKET_IFNAME==lo"} <= {*shown}
    chosen = started(tmp_path / "out", VLLM_SERVE="bash -c env", GLOO_SOCKET_IFNAME="eth1")
    assert "GLOO_SOCKET_IFNAME=eth1" in chosen


def test_the_length_is_at_most_what_the_model_allows(
    store: Store, adapter: Path, tmp_path: Path
) -> None:
    run = store.add("adding-1", adapter, data={"train": "data/train.jsonl", "max_length": 4096})
    store.export(run, tmp_path / "out", to="vllm", check=0)
    assert option(started(tmp_path / "out"), "--max-model-len") == "1024"


def test_an_adapter_is_served_beside_its_base(store: Store, adapter: Path, tmp_path: Path) -> None:
    from peft import PeftConfig

    run = store.add("adding-1", adapter)
    done = store.export(run, tmp_path / "out", to="vllm", lora=True)
    words = started(tmp_path / "out")
    assert words[0] == "base"
    assert option(words, "--served-model-name") == "adding-base"
    assert option(words, "--lora-modules") == "adding=adapter"
    assert option(words, "--max-lora-rank") == "8"  # Its rank is 4, which vLLM does not accept.
    assert {"base/model.safetensors", "adapter/adapter_model.safetensors"} <= set(done.files)
    assert PeftConfig.from_pretrained(str(tmp_path / "out" / "adapter")).r == 4
    for name in ("README.md", "adapter/adapter_config.json"):  # No folder of this machine.
        assert "/models/" not in (tmp_path / "out" / name).read_text()


@pytest.mark.parametrize("lora", [False, True])
def test_the_request_of_the_command_names_the_served_model(
    store: Store, adapter: Path, tmp_path: Path, lora: bool
) -> None:
    done = store.export(store.add("a", adapter), tmp_path / "out", to="vllm", check=0, lora=lora)
    words = shlex.split(done.command.splitlines()[1])
    assert json.loads(words[-1])["model"] == "adding"
