"""Small runs with generated rows, for the benchmarks here and for `llmops bench loop`.

python -m tests.benchmarks.presets tiny FOLDER   # or smollm2-lora
llmops bench loop FOLDER/bench.train.yaml --runs 10
"""

from __future__ import annotations

import json
import random
import sys
from enum import StrEnum
from pathlib import Path
from typing import Any

NUM_ROWS = 64
STEPS = 3
CONFIG_NAME = "bench.train.yaml"
_TINY = f"""\
name: bench-tiny
model: tiny-llama
data: {{train: train.jsonl, max_length: 64}}
method: full
parallelism: {{strategy: zero2, num_workers: 2}}
training: {{micro_batch_size: 2, global_batch_size: 4, max_steps: {STEPS}, max_failures: 0}}
evaluation: {{at_end: false}}
"""
# As the shipped example trains it, but without evaluations and with a batch of 2 instead of 8:
# on two CPU cores a step of 8 takes seconds of arithmetic, which no start can make shorter.
_SMOLLM2_LORA = f"""\
name: bench-smollm2
model: SmolLM2-135M-Instruct
data: {{train: train.jsonl, max_length: 96}}
method: {{type: lora, r: 16, lora_alpha: 32}}
parallelism: {{strategy: ddp, num_workers: 1}}
optimizer: {{learning_rate: 1.0e-3}}
training: {{micro_batch_size: 2, global_batch_size: 2, max_steps: {STEPS}, max_failures: 0}}
evaluation: {{at_end: false}}
"""
_DISHES = ("Reuben Sandwich", "Peking Duck", "Pad Thai", "Greek Salad", "Miso Soup", "Tiramisu")
_PARTS = ("rye bread", "Swiss cheese", "rice noodles", "peanuts", "feta", "tofu", "soft egg")
_TAGS = ("american | main | none | gluten, milk", "thai | soup | none | egg", "greek | salad")


class Preset(StrEnum):
    TINY = "tiny"
    SMOLLM2_LORA = "smollm2-lora"


def write_workspace(preset: Preset, folder: Path) -> Path:
    """Write the same bytes each time. Returns the config file."""
    rng = random.Random(7)
    row = _number_row if preset is Preset.TINY else _menu_row
    rows = "".join(json.dumps(row(rng)) + "\n" for _ in range(NUM_ROWS))
    (folder / "train.jsonl").write_text(rows, encoding="utf-8")
    config = folder / CONFIG_NAME
    config.write_text(_TINY if preset is Preset.TINY else _SMOLLM2_LORA, encoding="utf-8")
    return config


def _number_row(rng: random.Random) -> dict[str, Any]:
    first, second = rng.randrange(100), rng.randrange(100)
    return {"text": f"{first} and {second} make {first + second}"}


def _menu_row(rng: random.Random) -> dict[str, Any]:
    """Return a row of the length that the shipped example's rows have."""
    dish = f"{rng.choice(_DISHES)}: {', '.join(rng.sample(_PARTS, 3))}, served warm."
    asked = f"Reply: cuisine | course | diet | allergens\n{dish}"
    return {
        "messages": [
            {"role": "system", "content": "You tag menus."},
            {"role": "user", "content": asked},
            {"role": "assistant", "content": rng.choice(_TAGS)},
        ]
    }


if __name__ == "__main__":
    Path(sys.argv[2]).mkdir(parents=True, exist_ok=True)
    print(write_workspace(Preset(sys.argv[1]), Path(sys.argv[2])))
