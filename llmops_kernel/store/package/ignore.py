"""Which files of a workspace stay at home: ignore files at each level, and sane defaults."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from pathspec import GitIgnoreSpec

from llmops_kernel.errors import WorkspaceError
from llmops_kernel.store.package.secret_files import is_secret

IGNORE_FILES = (".gitignore", ".rayignore", ".llmopsignore")
"""Files with the syntax of `.gitignore`; inside one folder the later file takes precedence."""
_OURS = IGNORE_FILES[-1]

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
    # What runs and trackers write.
    "checkpoint-[0-9]*/",
    "wandb/",
    "mlruns/",
)
"""`!pattern` in an ignore file of the workspace includes a file again. Secrets are in
`secret_files`."""

_NEVER = frozenset({".git", ".llmops"})
"""`.llmops` holds the package's own metadata."""


@dataclass(frozen=True)
class IgnoreRules:
    """The patterns that hold in one folder: its own before its parents'."""

    levels: tuple[tuple[str, GitIgnoreSpec], ...]
    own: tuple[tuple[str, GitIgnoreSpec], ...] = ()
    """Of these, the patterns of `.llmopsignore` files: only they can include a secret."""

    @classmethod
    def default(cls) -> IgnoreRules:
        return cls((("", GitIgnoreSpec.from_lines(DEFAULT_EXCLUDES)),))

    def inside(self, folder: Path, *, rel: str, names: Collection[str]) -> IgnoreRules:
        """The rules inside `folder`; `rel` is its path in the workspace, `names` what it holds."""
        found = {name: _lines(folder / name) for name in IGNORE_FILES if name in names}
        lines = [line for of_file in found.values() for line in of_file]
        if not lines:
            return self
        prefix = f"{rel}/" if rel else ""
        own = self.own
        try:
            spec = GitIgnoreSpec.from_lines(lines)
            if of_ours := found.get(_OURS):
                own = (*own, (prefix, GitIgnoreSpec.from_lines(of_ours)))
        except ValueError as error:
            raise WorkspaceError(
                f"An ignore file in {folder} has a broken pattern: {error}",
                remedy=f"correct it; the files are {', '.join(IGNORE_FILES)}",
            ) from error
        return IgnoreRules((*self.levels, (prefix, spec)), own)

    def ignores(self, rel: str, *, is_folder: bool) -> bool:
        if rel.rpartition("/")[2] in _NEVER:
            return True
        return _decision(self.levels, f"{rel}/" if is_folder else rel) is True

    def leaves_out_secret(self, rel: str, *, is_folder: bool) -> bool:
        """Return whether a file stays at home for its name, which no `.llmopsignore` includes."""
        if not is_secret(rel):
            return False
        return _decision(self.own, f"{rel}/" if is_folder else rel) is not False


def _decision(levels: tuple[tuple[str, GitIgnoreSpec], ...], path: str) -> bool | None:
    for prefix, spec in reversed(levels):
        decision = spec.check_file(path[len(prefix) :]).include
        if decision is not None:
            return decision
    return None


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
