"""Models and adapters of the engines' tests."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest


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
def tiny_llama() -> Path:
    from llmops_kernel.models import catalogue

    return catalogue.prepare("tiny-llama")


@pytest.fixture(scope="session")
def smollm() -> Path:
    from llmops_kernel.models import catalogue

    return catalogue.prepare("SmolLM2-135M-Instruct")
