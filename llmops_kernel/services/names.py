"""Names of runs, clusters and templates as they are on disk, for shell completion.

Imports nothing heavy: a shell waits for it at each press of the tab key.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from llmops_kernel.store.paths import home

_TEMPLATES = "cluster_templates"
_NEWEST = 200


def run_names() -> Iterator[str]:
    """Yield `last` and the ids of the newest runs, newest first."""
    yield "last"
    folders = [entry for entry in _entries(home() / "runs") if entry.is_dir()]
    folders.sort(key=lambda entry: entry.stat().st_mtime, reverse=True)
    yield from (entry.name for entry in folders[:_NEWEST])


def cluster_names() -> Iterator[str]:
    """Yield names of local clusters, then of templates: a cluster on Kubernetes has its name."""
    local = [entry.name for entry in _entries(home() / "clusters") if entry.is_dir()]
    yield from dict.fromkeys([*sorted(local), *template_names()])


def template_names() -> Iterator[str]:
    """Yield `local` and the names of template files here and in the package."""
    package = Path(__file__).parents[1]
    folders = (Path(_TEMPLATES), package / _TEMPLATES, package.parent / _TEMPLATES)
    files = (entry.name for folder in folders for entry in _entries(folder))
    names = (name.removesuffix(".yaml") for name in files if name.endswith(".yaml"))
    yield from dict.fromkeys(["local", *sorted(set(names) - {"rbac"})])


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError:
        return []
