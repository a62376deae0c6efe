"""Finds the workspace's data on a worker: it travels apart from the code."""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, computed_field

from llmops_kernel.errors import WorkspaceError

ASSETS_FILE = ".llmops/assets.json"
"""A file of the code package: the assets package's name and content."""


class Assets(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")

    hash: str = ""
    """Empty when the workspace has no data."""
    files: tuple[str, ...] = ()
    """Paths relative to the workspace."""

    @computed_field  # type: ignore[prop-decorator]
    @property
    def folder(self) -> str:
        """Return the one folder at the top of the assets package."""
        return f"llmops_assets_{self.hash}" if self.hash else ""


def link_assets(workspace: Path, *, search: Sequence[str] | None = None) -> list[str]:
    """Link the data files into the unpacked code, so that it looks as in the workspace.

    `search` are the folders to find the assets in, default `sys.path`, where Ray puts its
    `py_modules`. Any number of workers of one node may do this at once. Returns the paths
    linked now. Raises WorkspaceError when the assets did not arrive.
    """
    about_file = workspace / ASSETS_FILE
    if not about_file.exists():
        return []
    assets = Assets.model_validate_json(about_file.read_bytes())
    if not assets.hash:
        return []
    places = [Path(place) / assets.folder for place in (sys.path if search is None else search)]
    source = next((place for place in places if place.is_dir()), None)
    if source is None:
        raise WorkspaceError(
            f"The workspace's data package {assets.folder} is not on this node.",
            remedy="submit again; if it persists, check the runtime environment's log on the node",
        )
    linked = []
    for rel in assets.files:
        link = workspace / rel
        link.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileExistsError):
            link.symlink_to(source / rel)
            linked.append(rel)
    return linked


# --- Files that are not uploaded ---
# Files that an ignore file keeps at home although a run may need them: which, and what to do.


MOST = 50
"""Number of them that a run's record names."""
_MAX_SHOWN = 5


def named_by(sources: Iterable[Path], ignored: Sequence[str], root: Path) -> list[str]:
    """Return the ignored paths of the workspace `root` that programs name, in a text or an import.

    A path inside an ignored folder counts if it exists, and a bare name if a file has it.
    """
    if not ignored:
        return []
    by_name = {path.rstrip("/").rpartition("/")[2]: path for path in reversed(ignored)}
    paths_named: dict[str, None] = {}
    for source in sources:
        for text in _texts(source):
            if path := _match(text, ignored, root) or by_name.get(text):
                paths_named[path] = None
    return list(paths_named)


def sources_of(config: Mapping[str, Any], root: Path) -> list[Path]:
    """Return the Python files that a run's config names: its script, or its hooks."""
    hooks = config.get("hooks")
    names = [config.get("script"), hooks.get("file") if isinstance(hooks, Mapping) else None]
    return [root / name for name in names if isinstance(name, str) and name]


def _match(text: str, ignored: Sequence[str], root: Path) -> str:
    """Return the path that the text names, relative to the root; empty if it is none of these."""
    path = os.path.normpath(text)
    if os.path.isabs(path):
        path = os.path.relpath(path, root)
    if path.startswith("..") or path == ".":
        return ""
    pattern = covers(ignored, path)
    return path if pattern and (root / path).exists() else ""


def covers(ignored: Sequence[str], path: str) -> str:
    """Return which of the ignored paths a relative path is, or is in; empty if none."""
    for pattern in ignored:
        if path == pattern.rstrip("/") or (pattern.endswith("/") and path.startswith(pattern)):
            return pattern
    return ""


def _texts(source: Path) -> Iterable[str]:
    """Yield each text of a Python file, and of each import the file that it would be."""
    try:
        text = source.read_text(errors="replace")
        tree = ast.parse(text)
    except (OSError, SyntaxError, ValueError, RecursionError):
        return
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            if 0 < len(node.value) <= 200 and "\n" not in node.value:
                yield node.value
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module]
        for name in names:
            path = name.replace(".", "/")
            yield f"{path}.py"
            yield path


def at_home_line(paths: Sequence[str], *, what: str) -> str:
    """Return the sentence about files that `what`, such as `train.py`, names; empty for none."""
    if not paths:
        return ""
    num_more = len(paths) - _MAX_SHOWN
    listing = ", ".join(paths[:_MAX_SHOWN]) + (f" and {num_more} more" if num_more > 0 else "")
    return (
        f"Not uploaded, as an ignore file says so, but named in {what}: {listing}. {how(paths[0])}"
    )


def how(path: str) -> str:
    """Return what to do about one of them."""
    return (
        f"If the run needs it, include it by a line such as !{path} in .llmopsignore; where it is"
        " large, put it on a disk or into a bucket that the cluster reaches"
    )
