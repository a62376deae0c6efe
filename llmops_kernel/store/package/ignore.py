"""Which files of a workspace stay at home: ignore files at each level, and sane defaults."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from pathspec import GitIgnoreSpec

from llmops_kernel.errors import WorkspaceError

IGNORE_FILES = (".gitignore", ".rayignore", ".llmopsignore")
"""Files with the syntax of `.gitignore`; inside one folder the later file takes precedence."""

DEFAULT_EXCLUDES = (
    ".git",
    ".hg",
    ".svn",
    ".venv",
    "venv",
    "__pycache__",
    "*.py[co]",
    "*.egg-info",
    ".eggs",
    ".tox",
    ".nox",
    ".cache",
    ".mypy_cache",
    ".pytest_cache",
    ".ruff_cache",
    ".hypothesis",
    "node_modules",
    ".ipynb_checkpoints",
    # Saving a notebook must not make the code look new; nothing on the cluster opens it.
    "*.ipynb",
    ".idea",
    ".vscode",
    ".DS_Store",
    ".#*",
    "*.swp",
    # Secrets do not travel by accident.
    ".env",
    ".env.*",
    ".netrc",
    # What runs and trackers write.
    "checkpoint-[0-9]*/",
    "wandb/",
    "mlruns/",
)
"""`!pattern` in an ignore file of the workspace includes a file again."""

_NEVER = frozenset({".git", ".llmops"})
"""`.llmops` holds the package's own metadata."""


@dataclass(frozen=True)
class IgnoreRules:
    """The patterns that hold in one folder: its own before its parents'."""

    levels: tuple[tuple[str, GitIgnoreSpec], ...]

    @classmethod
    def default(cls) -> IgnoreRules:
        return cls((("", GitIgnoreSpec.from_lines(DEFAULT_EXCLUDES)),))

    def inside(self, folder: Path, *, rel: str, names: Collection[str]) -> IgnoreRules:
        """The rules inside `folder`; `rel` is its path in the workspace, `names` what it holds."""
        present = [name for name in IGNORE_FILES if name in names]
        lines = [line for name in present for line in _lines(folder / name)]
        if not lines:
            return self
        prefix = f"{rel}/" if rel else ""
        try:
            spec = GitIgnoreSpec.from_lines(lines)
        except ValueError as error:
            raise WorkspaceError(
                f"An ignore file in {folder} has a broken pattern: {error}",
                remedy=f"correct it; the files are {', '.join(IGNORE_FILES)}",
            ) from error
        return IgnoreRules((*self.levels, (prefix, spec)))

    def ignores(self, rel: str, *, is_folder: bool) -> bool:
        if rel.rpartition("/")[2] in _NEVER:
            return True
        path = f"{rel}/" if is_folder else rel
        for prefix, spec in reversed(self.levels):
            decision = spec.check_file(path[len(prefix) :]).include
            if decision is not None:
                return decision
        return False


def _lines(path: Path) -> list[str]:
    try:
        text = path.read_text(encoding="utf-8", errors="surrogateescape")
    except (FileNotFoundError, IsADirectoryError):
        return []
    except OSError as error:
        raise WorkspaceError(
            f"Cannot read {path}: {error.strerror}", remedy=f"make {path.name} readable"
        ) from error
    return text.splitlines()
