"""The plan of a GPU's memory and speed beside what is measured there.

Never run on a GPU yet. Run with `-s` for the figures. That the configs are valid is tested anywhere
(`test_cases.py`).
"""

from __future__ import annotations

import json
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from llmops_kernel.services.plan import plan_config
from tests.gpu.trained import GPUS, sections, trained

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not GPUS, reason="needs a GPU"),
]
LENGTH = 1024
SIZES = {
    "model_type": "qwen2", "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 16,
    "num_attention_heads": 16, "num_key_value_heads": 4, "vocab_size": 49152,
    "tie_word_embeddings": True, "max_position_embeddings": 2048, "use_cache": False,
}  # fmt: skip
DDP = {"strategy": "ddp"}
CHECKPOINTING = {**DDP, "gradient_checkpointing": True}
OF_ALL = {
    "model": {"id": "qwen"},
    "data": {"max_length": LENGTH, "long_texts": "cut"},
    "performance": "off",
}
CASES: dict[str, dict[str, Any]] = {
    "lora": {**OF_ALL, "method": "lora", "parallelism": DDP},
    "full": {**OF_ALL, "method": "full", "parallelism": DDP},
    "full, checkpointing": {**OF_ALL, "method": "full", "parallelism": CHECKPOINTING},
    "full, zero2": {**OF_ALL, "method": "full", "parallelism": {"strategy": "zero2"}},
}


def random_model(folder: Path) -> None:
    """Write a model of SIZES with random weights, and the tokenizer of a small one."""
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    from llmops_kernel.models.catalogue import prepare

    config = AutoConfig.for_model(**SIZES)
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    AutoTokenizer.from_pretrained(str(prepare("tiny-llama"))).save_pretrained(folder)


@pytest.mark.parametrize("name", CASES)
def test_the_plan_is_what_the_allocator_reports(name: str, tmp_path: Path) -> None:
    random_model(tmp_path / "qwen")
    text = " ".join(f"number {number} follows" for number in range(LENGTH))
    events = trained(CASES[name], tmp_path, rows=[{"text": text}] * 96)
    start = next(event for event in events if event.kind == "start")
    steps = [event for event in events if event.kind == "step"]
    measured = max(step.peak_memory_bytes or 0 for step in steps)
    config = sections(CASES[name], workers=GPUS).model_dump(mode="json")
    (tmp_path / "plan.train.yaml").write_text(json.dumps(config))
    plan = plan_config(tmp_path / "plan.train.yaml").plan
    # What is allocated: the context and fragments are not.
    planned = plan.memory.total - plan.memory.overhead
    times = [step.tokens_per_second for step in steps[5:] if step.tokens_per_second]
    speed = None if plan.speed is None else plan.speed.tokens_per_second
    print(
        f"\n{name} on {start.device}: planned {planned / 2**20:,.0f} MiB, measured"
        f" {measured / 2**20:,.0f} ({planned / measured - 1:+.1%}); tokens a second: planned"
        f" {speed and round(speed)}, measured {round(median(times))}"
    )
    assert planned == pytest.approx(measured, rel=0.1)
