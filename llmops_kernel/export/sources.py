"""The files of an export: the run's result and its base model, as local folders."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from llmops_kernel.errors import ExportError, ModelError
from llmops_kernel.models.source import model_source
from llmops_kernel.store.export_job import ModelSource
from llmops_kernel.tables.files import open_url

ADAPTER_CONFIG = "adapter_config.json"
DOWNLOAD = ".result"
"""In the scratch folder: the result of a run that is at a URL."""


def local_result(source: ModelSource, scratch: Path) -> Path:
    """Return the folder of the run's result; one at a URL is downloaded into `scratch`."""
    if "://" not in source.location:
        return Path(source.location)
    folder = scratch / DOWNLOAD
    try:
        filesystem, path = open_url(source.location)
        files = filesystem.find(path)
        for file in files:
            target = folder / str(file)[len(str(path)) :].lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            filesystem.get_file(file, str(target))
    except Exception as error:  # Each kind of bucket has errors of its own.
        raise ExportError(
            f"The result of the run cannot be read from {source.location}:"
            f" {type(error).__name__}: {error}",
            remedy="check the URL and the credentials for it in this environment",
        ) from error
    if not files:
        raise ExportError(
            f"The result of the run is gone: there is nothing at {source.location}",
            remedy="restore it, or train again: llmops resubmit RUN",
        )
    return folder


def adapter_config(folder: Path) -> dict[str, Any]:
    """Return an adapter's config; empty if there is none."""
    with suppress(OSError, ValueError):
        value = json.loads((folder / ADAPTER_CONFIG).read_text())
        return value if isinstance(value, dict) else {}
    return {}


def base_model(source: ModelSource, result: Path) -> str:
    """Return the base model as a folder or a hub id. Raises ModelError."""
    base = source.base or str(adapter_config(result).get("base_model_name_or_path") or "")
    if not base:
        raise ModelError(
            f"Neither the run nor {result / ADAPTER_CONFIG} names the base model.",
            remedy="name it with --base",
        )
    roots = tuple(Path(root) for root in source.roots)
    return model_source(base, roots=roots, cache=None)
