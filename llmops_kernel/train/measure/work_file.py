"""Counts of earlier runs on this node, so that a model is counted once a method."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

from torch import nn

from llmops_kernel.metrics.model_work import AttentionWork, ModelWork
from llmops_kernel.store.paths import cache
from llmops_kernel.train.measure.twin import shape_of
from llmops_kernel.train.measure.versions import installed_versions

FORMAT = 3
"""Raise it when the same modules are counted otherwise."""


class WorkFile:
    """The count of one model with one method; `key` from `work_key`."""

    def __init__(self, key: str, root: Path | None = None) -> None:
        self._file = (root or cache()) / "flops" / f"{key}.json"

    def read(self) -> ModelWork | None:
        """Return the count that was checked; None where there is none."""
        try:
            fields = json.loads(self._file.read_text())
            attention = tuple(AttentionWork(**one) for one in fields.pop("attention"))
            return ModelWork(**fields, attention=attention)
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            return None

    def write(self, work: ModelWork) -> None:
        """Keep a count; without a place to keep it, it is made again by the next run."""
        scratch = self._file.with_suffix(f".{os.getpid()}")
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            scratch.write_text(json.dumps(asdict(work)))
            scratch.replace(self._file)
        except OSError:
            return


def work_key(model: nn.Module, *, checkpointing: bool) -> str:
    """Return a hash of what the count depends on: classes, sizes, what is trained, versions."""
    config: Any = getattr(model, "config", None)
    facts = [
        f"{FORMAT} {checkpointing} {installed_versions()}",
        config.to_json_string() if hasattr(config, "to_json_string") else "",
    ]
    for path, module in model.named_modules():
        facts.append(f"{path}:{type(module).__module__}.{type(module).__qualname__}")
        # Of the module alone; `named_parameters` would take several times as long.
        facts += [
            f"{name}:{tuple(shape_of(one))}:{one.requires_grad}"
            for name, one in module._parameters.items()
            if one is not None
        ]
    return hashlib.sha256("\n".join(facts).encode()).hexdigest()[:32]
