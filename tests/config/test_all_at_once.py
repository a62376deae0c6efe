"""Independent mistakes in a config and in the files it names are all in one report."""

import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmops_kernel.config.assist import diagnose, examine
from llmops_kernel.config.assist.file_kinds import TRAIN
from llmops_kernel.config.problems import Problem
from llmops_kernel.config.reading.document import dump
from llmops_kernel.errors import ConfigError
from tests.configs import load_training_config, training_config_from_dict

ROWS = '{"text": "a"}\n'
VALID: dict[str, Any] = {
    "name": "good",
    "seed": 1,
    "model": {"id": "tiny-llama", "dtype": "float32"},
    "data": {"train": "rows.jsonl", "eval": "eval.jsonl"},
    "method": {"type": "lora", "r": 8},
    "parallelism": {"strategy": "ddp", "num_workers": 1},
    "optimizer": {"learning_rate": 1e-4},
    "training": {"micro_batch_size": 2, "global_batch_size": 4},
    "hooks": {"file": "hooks.py"},
}


@pytest.mark.parametrize("section", ["", "optimizer", "training_arguments"])
def test_a_file_with_thousands_of_unknown_keys_is_a_short_report(section: str) -> None:
    """A suggestion for each of them took 15 s, and nobody reads 15,000 lines."""
    data: dict[str, Any] = {"model": "tiny-llama", "data": "rows.jsonl"}
    unknown = {f"learning_rat_{number}": number for number in range(15_000)}
    data |= {section: unknown} if section else unknown
    begun_s = time.process_time()
    with pytest.raises(ConfigError) as raised:
        training_config_from_dict(data)
    assert time.process_time() - begun_s < 3, "it took 0.1 s where this was written"
    lines = raised.value.message.splitlines()
    assert len(lines) == 101
    assert any("learning_rat_7: " in line and "learning_rate" in line for line in lines)
    assert "14,900 more" in lines[-1] + lines[0]


@dataclass(frozen=True)
class Mistake:
    """What is put in at a path, and what the report says about it."""

    put: str
    value: Any
    path: str
    """Field that the problem names."""
    says: str
    files: dict[str, str | None] = field(default_factory=dict)
    """Files written (or deleted) for it."""


MISTAKES = [
    Mistake("sed", 1, "sed", "did you mean seed?"),
    Mistake("optimizer.learning_rat", 1, "optimizer.learning_rat", "did you mean learning_rate?"),
    Mistake("training.num_epoch", 1, "training.num_epoch", "mean num_epochs?"),
    Mistake("method.alfa", 1, "method.alfa", "unknown key"),
    Mistake("seed", "many", "seed", "the default is 42"),
    Mistake("name", "My Run", "name", "write for example my-run"),
    Mistake("model.dtype", "fp16", "model.dtype", "did you mean bfloat16?"),
    Mistake("data.packing", 5, "data.packing", "must be true or false"),
    Mistake("data.max_length", "12 tokens", "data.max_length", "the bare number, 12"),
    Mistake("method.r", 0, "method.r", "at least 1"),
    Mistake("parallelism.use_gpu", "maybe", "parallelism.use_gpu", "true or false or auto"),
    Mistake("parallelism.offload_optimizer", True, "parallelism.offload_optimizer", "only ZeRO"),
    Mistake("training.global_batch_size", 5, "training.global_batch_size", "not a multiple"),
    Mistake("checkpoint.keep", 0, "checkpoint.keep", "at least 1"),
    Mistake("report_to", ["wandbb"], "report_to", "did you mean wandb?"),
    Mistake("training_arguments.lr", 1, "training_arguments.lr", "set optimizer.learning_rate"),
    Mistake("data.train", "rowz.jsonl", "data.train", "did you mean rows.jsonl?"),
    Mistake("data.eval", "broken.jsonl", "data.eval", "row 2: not JSON",
            {"broken.jsonl": ROWS + "{'text': 1}\n"}),
    Mistake("model.id", "./nowhere/model", "model.id", "does not exist either"),
    Mistake("hooks.file", "bad.py", "hooks.file", "is called with (row)",
            {"bad.py": "def format_example():\n    return 1\n"}),
]  # fmt: skip


def write(folder: Path, mistakes: list[Mistake]) -> Path:
    """Write a valid config with these mistakes planted, and all files beside it."""
    data = json.loads(json.dumps(VALID))
    files: dict[str, str | None] = {"rows.jsonl": ROWS, "eval.jsonl": ROWS}
    files["hooks.py"] = "def callbacks():\n    return []\n"
    for mistake in mistakes:
        section, _, key = mistake.put.rpartition(".")
        (data.setdefault(section, {}) if section else data)[key] = mistake.value
        files |= mistake.files
    for name, text in files.items():
        if text is not None:
            (folder / name).write_text(text)
    path = folder / "a.train.yaml"
    path.write_text(dump(data))
    return path


def problems(path: Path) -> list[Problem]:
    found = examine(TRAIN, path.read_text(), folder=path.parent, with_files=True)
    return found.problems


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: f"{mistake.put}={mistake.value}")
def test_each_mistake_is_reported_beside_an_unknown_key(mistake: Mistake, tmp_path: Path) -> None:
    path = write(tmp_path, [mistake, Mistake("xyzzy", 1, "xyzzy", "")])
    found = diagnose(TRAIN, path.read_text(), folder=tmp_path, with_files=True)
    assert {mistake.path, "xyzzy"} <= {one.path for one in found}


def test_an_unknown_key_does_not_hide_a_missing_file(tmp_path: Path) -> None:
    path = tmp_path / "a.train.yaml"
    path.write_text("model: tiny-llama\ndata: rowz.jsonl\nsed: 1\n")
    (tmp_path / "rows.jsonl").write_text(ROWS)
    with pytest.raises(ConfigError) as caught:
        load_training_config(path, workspace=tmp_path)
    found = {problem.path: str(problem) for problem in caught.value.problems}
    assert set(found) == {"sed", "data.train"}
    assert "no such file" in found["data.train"]
    assert "did you mean rows.jsonl?" in found["data.train"]


@settings(max_examples=60, deadline=None)
@given(mistakes=st.lists(st.sampled_from(MISTAKES), unique_by=lambda m: m.path, max_size=8))
def test_independent_mistakes_are_all_reported(mistakes: list[Mistake]) -> None:
    with TemporaryDirectory() as folder:
        found = problems(write(Path(folder), mistakes))
    assert sorted(problem.path for problem in found) == sorted(one.path for one in mistakes)
    for mistake in mistakes:
        (problem,) = (problem for problem in found if problem.path == mistake.path)
        assert mistake.says in str(problem)
