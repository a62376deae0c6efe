"""A workspace that is scored by an engine that answers at once, on a real Ray cluster; adapters."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest

import llmops_kernel as llmops
from llmops_kernel.providers.protocol import ClusterInfo

ENGINE = "instant:InstantEngine"
INSTANT = Path(__file__).with_name("instant.py")


def write_workspace(folder: Path, rows: list[dict[str, Any]] | list[str]) -> Path:
    """Write rows (dicts, or lines as they are), the engine and a config; return its path."""
    folder.mkdir(exist_ok=True)
    lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
    (folder / "rows.jsonl").write_text("".join(line + "\n" for line in lines))
    shutil.copy(INSTANT, folder)
    config = {
        "name": "plumbing",
        "model": "tiny-llama",
        "input": {"path": "rows.jsonl", "key": "id"},
        "prompt": {"template": "{text}", "reference": "text"},
        "engine": {"type": ENGINE, "keep_s": 20, "batch_size": 32},
        "output": {"part_rows": 100},
        "evaluation": {"metrics": ["exact_match"]},
    }
    path = folder / "plumbing.score.yaml"
    path.write_text(json.dumps(config))
    return path


def numbered(count: int, text: str = "number {n}") -> list[dict[str, Any]]:
    return [{"id": f"r{n}", "text": text.format(n=n)} for n in range(count)]


def output_of(run: llmops.Run) -> Path:
    outputs = run.view.outputs
    return Path(outputs[-1].path) if outputs else run.folder.output


def table_of(folder: Path) -> list[dict[str, Any]]:
    """All rows of an output, in the order of the files' names."""
    files = sorted(str(path) for path in folder.glob("part-*.parquet"))
    return ds.dataset(files).to_table().to_pylist()


@pytest.fixture
def cluster(ray_cluster: ClusterInfo) -> llmops.Cluster:
    return llmops.cluster(ray_cluster.name)


@pytest.fixture
def score(cluster: llmops.Cluster, tmp_path: Path) -> Iterator[Callable[..., llmops.Run]]:
    """Submit rows with changes of the config; what still runs at the end is stopped."""
    runs: list[llmops.Run] = []

    def submit(rows: list[Any], **settings: Any) -> llmops.Run:
        path = write_workspace(tmp_path / "workspace", rows)
        runs.append(cluster.submit(path, overrides=settings))
        return runs[-1]

    yield submit
    for run in runs:
        if not run.has_ended:
            run.stop()
            run.wait(60, raise_on_failure=False)


@pytest.fixture(scope="session")
def random_adapter(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path, int], str]:
    """Make a LoRA adapter of a model with random weights, large enough to change its answers."""

    def make(model: Path, seed: int) -> str:
        import torch
        from peft import LoraConfig, get_peft_model
        from transformers import AutoModelForCausalLM

        base = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            config = LoraConfig(
                r=8, target_modules=["q_proj", "v_proj", "down_proj"], init_lora_weights=False
            )
            wrapped = get_peft_model(base, config)
        folder = tmp_path_factory.mktemp("adapter")
        wrapped.save_pretrained(folder)
        return str(folder)

    return make


@pytest.fixture(scope="session")
def smollm() -> Path:
    from llmops_kernel.models import catalogue

    return catalogue.prepare("SmolLM2-135M-Instruct")
