"""Where the files of a model are: the catalogue, a folder, or the hub."""

from __future__ import annotations

from pathlib import Path

from llmops_kernel.models import catalogue
from llmops_kernel.store.files import find


def model_source(model_id: str, *, roots: tuple[Path, ...], cache: Path | None) -> str:
    """Return a folder if there is one (catalogue, workspace), else the id as the hub knows it."""
    if catalogue.is_catalogue_name(model_id):
        return str(catalogue.prepare(model_id, cache))
    found = find(model_id, roots)
    return str(found) if found is not None else model_id
