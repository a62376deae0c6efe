"""What Ray's state API and the notes of engines say about the models that are loaded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from pydantic import ValidationError

from llmops_kernel.providers.protocol import EngineInfo
from llmops_kernel.store.engine_names import NAMESPACE, NOTES

_FILTERS = (("state", "ALIVE"), ("ray_namespace", NAMESPACE))
ENGINE_ACTORS = "/api/v0/actors?" + urlencode(
    [
        pair
        for key, value in _FILTERS
        for pair in (("filter_keys", key), ("filter_predicates", "="), ("filter_values", value))
    ]
)
"""Only living actors: Ray remembers many thousands of others."""


def engine_actors(answer: Any) -> list[dict[str, Any]] | None:
    """Return the actors of the answer, sorted by name; None when Ray did not say."""
    try:
        rows = answer["data"]["result"]["result"]
        return sorted((row for row in rows if row["name"]), key=lambda row: str(row["name"]))
    except (KeyError, TypeError):
        return None


def note_path(row: Mapping[str, Any]) -> str:
    """Return the path of the engine's own note."""
    file = {"node_id": row.get("node_id") or "", "filename": f"{NOTES}/{row['name']}.json"}
    return "/api/v0/logs/file?" + urlencode({**file, "lines": -1})


def engine_info(row: Mapping[str, Any], note: Any) -> EngineInfo:
    """Return what is known; `note` is what the engine wrote, or anything else."""
    name = str(row["name"])
    index = name.rpartition("-")[2]
    known = {
        "name": name,
        "replica": int(index) if index.isdigit() else None,
        "node_id": str(row.get("node_id") or ""),
    }
    # The note of a process that was killed may still be there.
    if not isinstance(note, Mapping) or note.get("pid") != row.get("pid"):
        return EngineInfo.model_validate(known)
    idle_since_s, keep_s = note.get("idle_since_s"), note.get("keep_s")
    leaves_at_s = None if idle_since_s is None or keep_s is None else idle_since_s + keep_s
    try:
        return EngineInfo.model_validate({**note, **known, "leaves_at_s": leaves_at_s})
    except ValidationError:  # Of another version.
        return EngineInfo.model_validate(known)
