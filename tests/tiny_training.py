"""A workspace with a training of the tiny model, which takes seconds."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import yaml

_HOOKS = """\
import time
from transformers import TrainerCallback

class Slow(TrainerCallback):
    def on_step_end(self, *args, **kwargs):
        time.sleep({pause_s})

def callbacks():
    return [Slow()]
"""
_SECTIONS: dict[str, object] = {
    "model": "tiny-llama",
    "data": {"train": "rows.jsonl", "max_length": 64},
    "method": "lora",
    "parallelism": {"strategy": "ddp", "num_workers": 1},
    "training": {"micro_batch_size": 2, "global_batch_size": 2, "max_steps": 3},
}


def slow_hooks(pause_s: float) -> str:
    """Return the text of a hooks file with which each step takes so much longer."""
    return _HOOKS.format(pause_s=pause_s)


def write_rows(folder: Path, *, count: int = 64) -> None:
    rows = ({"text": f"number {i} follows number {i - 1} and not {i + 3}"} for i in range(count))
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def write_training(
    folder: Path, name: str, *, hooks: str | None = None, rows: int = 64, **sections: object
) -> Path:
    """Write rows, hooks and the config; return the config's path.

    A mapping among `sections` is merged into the section of its name; anything else replaces it.
    """
    folder.mkdir(exist_ok=True)
    write_rows(folder, count=rows)
    config = {"name": name, **_SECTIONS}
    if hooks is not None:
        (folder / "hooks.py").write_text(hooks)
        config["hooks"] = "hooks.py"
    for section, value in sections.items():
        base = config.get(section)
        is_merged = isinstance(base, Mapping) and isinstance(value, Mapping)
        config[section] = {**base, **value} if is_merged else value
    path = folder / f"{name}.train.yaml"
    path.write_text(yaml.safe_dump(config, sort_keys=False, default_flow_style=None))
    return path
