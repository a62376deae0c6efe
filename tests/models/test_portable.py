"""A result names no folder of the machine that wrote it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from llmops_kernel.models.merging import make_portable, portable_name


@pytest.mark.parametrize(
    ("name", "config", "expected"),
    [
        ("tiny-llama", None, "tiny-llama"),
        ("org/model", None, "org/model"),
        ("/data/models/mine", {}, "mine"),
        ("models/mine", {}, "mine"),
        ("mine", {"_name_or_path": "org/model"}, "org/model"),
        ("mine", {"_name_or_path": "/opt/models/mine"}, "mine"),
    ],
)
def test_the_name_of_a_model_on_any_machine(
    tmp_path: Path, name: str, config: dict[str, str] | None, expected: str
) -> None:
    folder = tmp_path / "mine"
    if config is not None:
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps(config))
    source = name if config is None else str(folder)
    assert portable_name(name, source) == expected


@pytest.mark.parametrize(("trained", "written"), [({}, True), ({"use_cache": False}, False)])
def test_what_is_true_during_the_training_only_is_not_written(
    tmp_path: Path, trained: dict[str, bool], written: bool
) -> None:
    (tmp_path / "base").mkdir()
    (tmp_path / "base" / "config.json").write_text(json.dumps({"vocab_size": 7, **trained}))
    files = {
        "config.json": {"vocab_size": 7, "use_cache": False, "_name_or_path": "/opt/models"},
        "tokenizer_config.json": {"is_local": True, "local_files_only": True, "eos_token": "é"},
        "adapter_config.json": {"r": 4, "base_model_name_or_path": "/opt/models/base"},
    }
    for name, value in files.items():
        (tmp_path / name).write_text(json.dumps(value))
    make_portable(tmp_path, base="base", source=str(tmp_path / "base"))
    found = {name: json.loads((tmp_path / name).read_text()) for name in files}
    assert found == {
        "config.json": {"vocab_size": 7, "use_cache": written},
        "tokenizer_config.json": {"eos_token": "é"},
        "adapter_config.json": {"r": 4, "base_model_name_or_path": "base"},
    }
