"""Removes from a written model what is true on one machine, or during its training, only."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from llmops_kernel.models.catalogue import is_catalogue_name
from llmops_kernel.models.source import looks_like_hub_id

ADAPTER_CONFIG, CONFIG, TOKENIZER_CONFIG = (
    "adapter_config.json",
    "config.json",
    "tokenizer_config.json",
)
_OF_A_LOADING = ("is_local", "local_files_only", "name_or_path", "_name_or_path")
"""How a tokenizer or a model was loaded, which says nothing about itself."""


def portable_name(model_id: str, source: str) -> str:
    """Return the name of a model that a reader on another machine can use.

    That of the catalogue or the hub; of a folder the hub id that its config has, else its own name.
    """
    folder = Path(source)
    if is_catalogue_name(model_id) or not folder.is_dir():
        return model_id
    named = str(_read(folder / CONFIG).get("_name_or_path") or "")
    is_hub_id = looks_like_hub_id(named) and not Path(named).exists()
    return named if is_hub_id else folder.resolve().name


def make_portable(folder: Path, *, base: str = "", source: str = "") -> None:
    """Correct the files of a written model or adapter.

    `base`: portable name of the model that an adapter is of. `source`: folder of the model that
    was trained; its config says whether answers are computed with a cache, as they usually are.
    """
    _edit(folder / TOKENIZER_CONFIG, remove=_OF_A_LOADING)
    if "use_cache" in _read(folder / CONFIG):
        uses_cache = _read(Path(source) / CONFIG).get("use_cache", True) if source else True
        _edit(folder / CONFIG, add={"use_cache": bool(uses_cache)})
    _edit(folder / CONFIG, remove=_OF_A_LOADING)
    if base:
        _edit(folder / ADAPTER_CONFIG, add={"base_model_name_or_path": base})


def _edit(path: Path, *, remove: tuple[str, ...] = (), add: dict[str, Any] | None = None) -> None:
    found = _read(path)
    if not found:
        return
    wanted = {**{k: v for k, v in found.items() if k not in remove}, **(add or {})}
    if wanted != found:
        path.write_text(json.dumps(wanted, indent=2, sort_keys=True, ensure_ascii=False) + "\n")


def _read(path: Path) -> dict[str, Any]:
    """Return the object in a file; empty where there is none."""
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
