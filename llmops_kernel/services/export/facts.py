"""Facts of the model card, read from the record and the journal of a run."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from llmops_kernel.hardware.precision import AUTO
from llmops_kernel.store.export_job import CardFacts
from llmops_kernel.store.journal.training_view import TrainingView
from llmops_kernel.store.journal.view import RunView
from llmops_kernel.store.package.hashes import digest_of
from llmops_kernel.store.record.record import RunRecord

_SETTINGS = ("method", "optimizer", "training", "parallelism")
_MODEL_SETTINGS = ("dtype", "attention", "attn_implementation", "revision")


def card_facts(record: RunRecord, view: RunView, *, base: str) -> CardFacts:
    """Return what is known; nothing is guessed."""
    config = record.config
    return CardFacts(
        run_id=record.run_id,
        name=record.name,
        kind=record.kind,
        created=time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(record.created_s)),
        base=base,
        method=str(_section(config, "method").get("type", "")),
        settings=_settings(config) | _dtype(config, view),
        data=_data(record, view),
        state=view.state,
        config_hash=digest_of(json.dumps(config, sort_keys=True).encode()),
        code_hash=record.code_hash,
        git=_git(record),
        **(_measured(view, record) if isinstance(view, TrainingView) else {}),
    )


def _measured(view: TrainingView, record: RunRecord) -> dict[str, Any]:
    start, last = view.start, view.evals[-1] if view.evals else None
    metrics = {name: value for name, value in last.metrics.items()} if last else {}
    return {
        "steps": view.last_step,
        "total_steps": view.total_steps or None,
        "last_loss": _finite(view.loss),
        "metrics": {name: value for name, value in metrics.items() if math.isfinite(value)},
        "metrics_step": last.step if last else None,
        "metrics_rows": (last.num_rows or None) if last else None,
        "device": start.device if start else "",
        "workers": start.num_workers if start else None,
        "versions": dict(start.versions) if start and start.versions else dict(record.versions),
    }


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that decide what was learnt, by dotted name."""
    settings = {
        f"{section}.{name}": _plain(value)
        for section in _SETTINGS
        for name, value in _section(config, section).items()
    }
    model, data = _section(config, "model"), _section(config, "data")
    settings |= {f"model.{name}": model.get(name) for name in _MODEL_SETTINGS if name in model}
    names = ("max_length", "packing", "loss_on", "format", "shuffle")
    settings |= {f"data.{name}": data[name] for name in names if name in data}
    settings |= {"seed": config["seed"]} if "seed" in config else {}
    return {name: value for name, value in settings.items() if value is not None}


def _dtype(config: Mapping[str, Any], view: RunView) -> dict[str, str]:
    """Return the number format that `auto` was in this run; empty where the config names one."""
    start = view.start if isinstance(view, TrainingView) else None
    is_auto = _section(config, "model").get("dtype") == AUTO
    return {"model.dtype": f"{start.dtype} (auto)"} if is_auto and start else {}


def _plain(value: Any) -> Any:
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else value


def _section(config: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    section = config.get(name)
    return section if isinstance(section, Mapping) else {}


def _data(record: RunRecord, view: RunView) -> tuple[dict[str, Any], ...]:
    """Return training and evaluation data: rows as the run counted them, hash of the file."""
    data = _section(record.config, "data")
    start = view.start if isinstance(view, TrainingView) else None
    counts = {"train": start.num_rows if start else 0, "eval": start.num_eval_rows if start else 0}
    labels = {"train": "training", "eval": "evaluation"}
    return tuple(
        {
            "role": labels[role],
            "source": _shown(path) + ("" if weight == 1 else f" (weight {weight:g})"),
            # With several sources only the sum of all rows was counted.
            "rows": (counts[role] or None) if isinstance(data[role], str) else None,
            "sha256_16": record.files.get(path.removeprefix("./")),
        }
        for role in labels
        for path, weight in _sources(data.get(role))
    )


def _sources(sources: Any) -> list[tuple[str, float]]:
    """Return path and weight of each source that a field of the config names."""
    if not isinstance(sources, list | tuple):
        return [(str(sources), 1)] if sources else []
    return [(str(source["path"]), source.get("weight", 1)) for source in sources]


def _shown(source: str) -> str:
    """Return a source without the folders of this machine."""
    return Path(source).name if source.startswith(("/", "~")) else source


def _git(record: RunRecord) -> str:
    if record.git is None:
        return ""
    changed = ", with changes that were not committed" if record.git.dirty else ""
    return f"{record.git.revision}{changed}"
