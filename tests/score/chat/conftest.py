"""A run with an adapter, and a chat with it on a real cluster."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from llmops_kernel.providers.protocol import ClusterInfo
from llmops_kernel.services.backend import Backend
from llmops_kernel.store.store import RunStore
from tests.score.chat.trained import add_trained_run


@pytest.fixture(scope="session")
def adapter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A LoRA adapter of the tiny model with random weights."""
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    from llmops_kernel.models import catalogue

    base = AutoModelForCausalLM.from_pretrained(catalogue.prepare("tiny-llama"))
    with torch.random.fork_rng():
        torch.manual_seed(1)
        targets = ["q_proj", "v_proj", "down_proj"]
        config = LoraConfig(r=8, target_modules=targets, init_lora_weights=False)
        wrapped = get_peft_model(base, config)
    folder = tmp_path_factory.mktemp("adapter")
    wrapped.save_pretrained(folder)
    return folder


@pytest.fixture
def backend() -> Backend:
    return Backend(store=RunStore())


@pytest.fixture
def trained(ray_cluster: ClusterInfo, backend: Backend, adapter: Path) -> Callable[..., str]:
    """Add a run with that adapter as its output; returns its id."""
    numbers = iter(range(100))

    def add(**fields: object) -> str:
        run_id = f"lora-260101-1200{next(numbers):02}-{adapter.name[-1]}abc"
        while (backend.store.root / "runs" / run_id).exists():
            run_id += "0"
        values = {"output": adapter, "run_id": run_id, "cluster": ray_cluster.name, **fields}
        return add_trained_run(backend.store, **values)

    return add
