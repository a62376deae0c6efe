"""Files that an ignore file keeps at home although a run may need them: which, and what to do."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

MOST = 50
"""How many of them a run's record names."""
_MAX_SHOWN = 5


def named_by(sources: Iterable[Path], ignored: Sequence[str], root: Path) -> list[str]:
    """Return the ignored paths of the workspace `root` that programs name, in a text or an import.

    A path inside an ignored folder counts if it exists, and a bare name if a file has it.
    """
    if not ignored:
        return []
    by_name = {path.rstrip("/").rpartition("/")[2]: path for path in reversed(ignored)}
    found: dict[str, None] = {}
    for source in sources:
        for text in _texts(source):
            if path := _match(text, ignored, root) or by_name.get(text):
                found[path] = None
    return list(found)


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
    covered = covers(ignored, path)
    return path if covered and (root / path).exists() else ""


def covers(ignored: Sequence[str], path: str) -> str:
    """Return which of the ignored paths a relative path is, or is in; empty if none."""
    for one in ignored:
        if path == one.rstrip("/") or (one.endswith("/") and path.startswith(one)):
            return one
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


def at_home_line(named: Sequence[str], *, what: str) -> str:
    """Return the sentence about files that `what`, such as `train.py`, names; empty for none."""
    if not named:
        return ""
    more = len(named) - _MAX_SHOWN
    shown = ", ".join(named[:_MAX_SHOWN]) + (f" and {more} more" if more > 0 else "")
    return f"Not uploaded, as an ignore file says so, but named in {what}: {shown}. {how(named[0])}"


def how(path: str) -> str:
    """Return what to do about one of them."""
    return (
        f"If the run needs it, include it by a line such as !{path} in .llmopsignore; where it is"
        " large, put it on a disk or into a bucket that the cluster reaches"
    )
