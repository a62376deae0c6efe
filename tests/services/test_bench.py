"""The benchmark's order, and the configs that our own figures are of."""

from __future__ import annotations

from pathlib import Path

import pytest

from llmops_kernel.config.assist.file_kinds import check_files
from llmops_kernel.services.bench import order
from tests.benchmarks.presets import Preset, write_workspace
from tests.configs import load_training_config


@pytest.mark.parametrize(
    ("kinds", "runs", "expected"),
    [
        (["warm", "cold"], 2, "w c W1 C2 W3 C4"),
        (["warm"], 2, "w W1 W2"),
        (["cold"], 1, "c C1"),
    ],
)
def test_the_kinds_take_turns_after_a_warm_up_of_each(kinds, runs, expected) -> None:
    reported = [
        kind[0] if number is None else f"{kind[0].upper()}{number}"
        for kind, number in order(kinds, runs=runs)
    ]
    assert " ".join(reported) == expected


@pytest.mark.parametrize(("preset", "workers"), [(Preset.TINY, 2), (Preset.SMOLLM2_LORA, 1)])
def test_a_preset_is_a_right_config_and_the_same_each_time(
    preset: Preset, workers: int, tmp_path: Path
) -> None:
    folders = [tmp_path / "a", tmp_path / "b"]
    for folder in folders:
        folder.mkdir()
    first, second = (write_workspace(preset, folder) for folder in folders)
    config = load_training_config(first)
    assert check_files(config, folders[0]) == []
    assert config.parallelism.num_workers == workers
    assert config.training.max_steps == 3
    assert (folders[0] / "train.jsonl").read_bytes() == (folders[1] / "train.jsonl").read_bytes()
    assert first.read_bytes() == second.read_bytes()
