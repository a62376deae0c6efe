"""200 runs of six sweeps, with figures that depend on what was varied."""

from __future__ import annotations

import itertools
import random
from typing import Any

from llmops_kernel.store.store import RunStore
from tests.services.run_table.stores import add

_SWEEPS: dict[str, dict[str, list[Any]]] = {
    "menu-rate": {
        "optimizer.learning_rate": [1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 4e-3],
        "method.r": [4, 8, 16, 32, 64, 128],
    },
    "menu-batch": {
        "training.global_batch_size": [4, 8, 16, 32, 64],
        "optimizer.warmup_steps": [0, 5, 10, 20, 50, 100, 200],
    },
    "tags-method": {
        "method.type": ["lora", "full", "qlora"],
        "optimizer.learning_rate": [1e-5, 5e-5, 1e-4, 5e-4, 1e-3],
        "seed": [1, 2],
    },
    "tags-data": {
        "data.train": [f"s3://bucket/menu/part-{n}.jsonl" for n in range(8)],
        "data.max_length": [96, 256, 512, 1024],
    },
    "llama-zero": {
        "parallelism.strategy": ["ddp", "zero1", "zero2", "zero3"],
        "parallelism.num_workers": [1, 2, 4, 8],
        "training.micro_batch_size": [1, 2],
    },
    "llama-decay": {
        "optimizer.weight_decay": [0.0, 0.01, 0.05, 0.1, 0.2],
        "optimizer.adam_beta2": [0.9, 0.95, 0.98, 0.99, 0.995, 0.999, 0.9999],
    },
}
BASE: dict[str, dict[str, Any]] = {
    "model": {"id": "SmolLM2-135M-Instruct", "dtype": "bfloat16"},
    "data": {"train": "data/menu-train.jsonl", "max_length": 96},
    "method": {"type": "lora", "r": 16, "lora_alpha": 32},
    "parallelism": {"strategy": "ddp", "num_workers": 1},
    "optimizer": {"learning_rate": 2e-3, "warmup_steps": 5, "weight_decay": 0.0},
    "training": {"global_batch_size": 4, "micro_batch_size": 4, "max_steps": 120},
}


def add_sweeps(store: RunStore, *, count: int = 200) -> list[str]:
    """Return the ids, the oldest first."""
    noise, ids = random.Random(7), []
    for name, varied in _SWEEPS.items():
        for values in itertools.product(*varied.values()):
            number = len(ids)
            if number == count:
                return ids
            config: dict[str, Any] = {"seed": 42, **{k: dict(v) for k, v in BASE.items()}}
            for path, value in zip(varied, values, strict=True):
                section, _, key = path.partition(".")
                if key:
                    config[section][key] = value
                else:
                    config[section] = value
            loss = 0.2 + noise.random() / 4 + abs(config["optimizer"]["learning_rate"] - 1e-3) * 90
            ids.append(f"{name}-261120-10{number // 60:02d}{number % 60:02d}-{number:04x}")
            add(
                store,
                ids[-1],
                config=config,
                name=name,
                loss=loss,
                eval_loss=None if number % 17 == 3 else loss * 1.1,
                state=("FAILED", "STOPPED")[number % 2] if number % 23 == 0 else "SUCCEEDED",
                created_s=1_790_000_000.0 + 60 * number,
                cluster=("local", "gcp-h100")[number % 3 == 0],
            )
    return ids
