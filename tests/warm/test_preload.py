"""What the fork server must not import, though a library does where it is installed."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import importlib.util, sys
from llmops_kernel.warm.preload import preload

loaded = preload(["peft", "transformers.trainer"])
assert not loaded["missing"], loaded
assert "bitsandbytes" not in sys.modules, "imported in advance"

from transformers import LlamaConfig, LlamaForCausalLM
from llmops_kernel.config.models.train import TrainingConfig
from llmops_kernel.train.methods import lora

sizes = dict(hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2)
model = LlamaForCausalLM(LlamaConfig(vocab_size=32, num_key_value_heads=2, **sizes))
lora.prepare(model, TrainingConfig(model="tiny-llama", data="rows.jsonl"))
assert "bitsandbytes" not in sys.modules, "imported for LoRA"

from peft.import_utils import is_bnb_4bit_available
from transformers.utils import is_bitsandbytes_available

assert is_bnb_4bit_available()
assert is_bitsandbytes_available()
print("found when it is wanted:", "bitsandbytes" in sys.modules)
"""


@pytest.mark.slow
@pytest.mark.beside
@pytest.mark.timeout(300)
def test_bitsandbytes_is_imported_for_qlora_only() -> None:
    """PEFT imports it, it initialises CUDA, and then no process could be forked."""
    found = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=240
    )
    assert found.returncode == 0, found.stderr[-2000:]
    assert "found when it is wanted: True" in found.stdout
