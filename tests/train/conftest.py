"""A tiny model, its tokenizer and a context that needs no Ray."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.train.strategy_pairs import Pairs

os.environ.setdefault("OMP_NUM_THREADS", "1")
PEAK_TFLOPS = "10"
"""More than a CPU reaches with the tiny model."""


def rows(count: int) -> list[dict[str, str]]:
    return [
        {"prompt": f"what is {i} plus {i % 7}?", "completion": f"it is {i + i % 7}."}
        for i in range(count)
    ]


@pytest.fixture(scope="session")
def tiny_llama() -> Path:
    from llmops_kernel.models.catalogue import prepare

    return prepare("tiny-llama")


@pytest.fixture(scope="session")
def tokenizer(tiny_llama: Path) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(str(tiny_llama))


@pytest.fixture(scope="module")
def pairs() -> Iterator[Pairs]:
    """Trainings of two processes at a time; the processes stay for the tests of a file."""
    from tests.train.strategy_pairs import open_pairs

    with open_pairs() as pairs:
        yield pairs


@pytest.fixture(autouse=True)
def stated_peak(monkeypatch: pytest.MonkeyPatch) -> None:
    """State the peak: to measure it takes as long as many of these trainings."""
    monkeypatch.setenv("LLMOPS_PEAK_TFLOPS", PEAK_TFLOPS)


def write_rows(folder: Path) -> Path:
    folder.mkdir()
    (folder / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows(64)))
    return folder


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    return write_rows(tmp_path / "workspace")


@pytest.fixture(scope="session")
def make_config() -> Callable[..., Any]:
    """A small training config; keyword arguments replace or extend sections."""
    from llmops_kernel.config.models.train import TrainingConfig

    def make(**sections: Any) -> Any:
        base: dict[str, Any] = {
            "model": "tiny-llama",
            "data": {"train": "train.jsonl"},
            "parallelism": {"strategy": "ddp"},
            "training": {"micro_batch_size": 2, "global_batch_size": 4, "max_steps": 6},
        }
        for name, value in sections.items():
            both = isinstance(value, dict) and isinstance(base.get(name), dict)
            base[name] = {**base[name], **value} if both else value
        return TrainingConfig.model_validate(base)

    return make
