"""The files that differ between two runs, and which of them are code."""

from __future__ import annotations

import difflib
import json
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from llmops_kernel.store.package.assets import ASSETS_FILE, Assets
from llmops_kernel.store.record.record import RunRecord

ABSENT = "–"
"""Stands for a value that one of the two does not have."""
MAX_DIFF_LINES = 2000
_MAX_ASSET_BYTES = 256 * 1024  # Comparing the lines of more takes seconds.

_CODE = (
    *(".py", ".pyi", ".pyx", ".ipynb", ".sh", ".bash", ".c", ".cc", ".cpp", ".cu", ".cuh", ".h"),
    *(".hpp", ".rs", ".js", ".ts", ".sql", ".yaml", ".yml", ".toml", ".cfg", ".ini", ".conf"),
    *(".json", ".jinja", ".jinja2", ".j2", ".tmpl"),
)
_CODE_NAMES = ("makefile", "dockerfile", "requirements", "constraints", "environment")
_OTHER_FOLDERS = frozenset(
    {"data", "dataset", "datasets", "log", "logs", "output", "outputs", "out", "run", "runs"}
    | {"result", "results", "checkpoint", "checkpoints", "wandb", "mlruns", "lightning_logs"}
    | {"tensorboard", "build", "dist"}
)


@dataclass(frozen=True, kw_only=True)
class FileChange:
    path: str
    kind: Literal["added", "removed", "changed"]
    unified_diff: str
    """Unified difference of text that is kept; else one line that says why there is none."""
    is_code: bool = True
    """Whether it is shown open: data, logs, outputs and a notebook's outputs are no code."""

    @property
    def counts(self) -> str:
        """Return `+3 -1`, the lines of the difference; empty where the text is not compared."""
        added, removed = _count(self.unified_diff, "+"), _count(self.unified_diff, "-")
        if not (added or removed) or "\n... and " in self.unified_diff:
            return ""
        return f"+{added:,} -{removed:,}"


def file_changes(a: RunRecord, b: RunRecord, *, packages: Path) -> list[FileChange]:
    """Return the workspace files that differ, by path."""
    changed = sorted(path for path in a.files | b.files if a.files.get(path) != b.files.get(path))
    with _opened(a, packages) as old, _opened(b, packages) as new:
        return [_change(path, old, new) for path in changed if path != ASSETS_FILE]


def is_code(path: str) -> bool:
    """Return whether a file of a workspace is code or settings, by its name and folders."""
    *folders, name = PurePosixPath(path.lower()).parts
    if _OTHER_FOLDERS.intersection(folders):
        return PurePosixPath(name).suffix in (".py", ".pyi")
    return PurePosixPath(name).suffix in _CODE or name.startswith(_CODE_NAMES)


@dataclass(frozen=True)
class _Side:
    record: RunRecord
    code: zipfile.ZipFile | None
    assets: zipfile.ZipFile | None

    def text(self, path: str) -> str | None:
        """Return the file's text; empty if the run has no such file, None if it is not shown."""
        if path not in self.record.files:
            return ""
        in_assets = f"{Assets(hash=self.record.assets_hash).folder}/{path}"
        data = _read(self.code, path)
        data = _read(self.assets, in_assets, max_bytes=_MAX_ASSET_BYTES) if data is None else data
        if data is None or b"\0" in data:
            return None
        try:
            return data.decode()
        except UnicodeDecodeError:
            return None


def _read(
    archive: zipfile.ZipFile | None, name: str, *, max_bytes: int | None = None
) -> bytes | None:
    """Return a member; None if it is not there, broken, or larger than `max_bytes` bytes."""
    if archive is None:
        return None
    try:
        if max_bytes is not None and archive.getinfo(name).file_size > max_bytes:
            return None
        return archive.read(name)
    except (KeyError, OSError, zipfile.BadZipFile, zlib.error):
        return None


@contextmanager
def _opened(record: RunRecord, packages: Path) -> Iterator[_Side]:
    """Open what is kept of the run's packages."""
    with ExitStack() as stack:
        yield _Side(
            record,
            _open(stack, packages, record.code_hash),
            _open(stack, packages, record.assets_hash),
        )


def _open(stack: ExitStack, packages: Path, content_hash: str) -> zipfile.ZipFile | None:
    """Return the kept package; None if there is none, or it is gone or broken."""
    if not content_hash:
        return None
    try:
        return stack.enter_context(zipfile.ZipFile(packages / f"{content_hash}.zip"))
    except (OSError, zipfile.BadZipFile):
        return None


def _change(path: str, a: _Side, b: _Side) -> FileChange:
    kind: Literal["added", "removed", "changed"] = "changed"
    if path not in a.record.files:
        kind = "added"
    elif path not in b.record.files:
        kind = "removed"
    text, in_code = _difference(path, a, b)
    return FileChange(path=path, kind=kind, unified_diff=text, is_code=in_code and is_code(path))


def _difference(path: str, a: _Side, b: _Side) -> tuple[str, bool]:
    """Return the unified difference, and whether what differs can be code at all."""
    old, new = a.text(path), b.text(path)
    if old is None or new is None:
        content_a, content_b = (side.record.files.get(path, ABSENT) for side in (a, b))
        return (
            f"{path}: binary, large or no longer kept; content {content_a} -> {content_b}\n",
            True,
        )
    if path.endswith(".ipynb"):
        cells = source_lines(old), source_lines(new)
        if cells[0] is not None and cells[1] is not None:
            if cells[0] == cells[1]:
                return f"{path}: only outputs and metadata of the notebook differ\n", False
            return _unified(path, cells[0], cells[1]), True
    text = _unified(path, old.splitlines(), new.splitlines())
    return text or (f"{path}: only line ends differ\n" if old != new else ""), True


def _unified(path: str, old: list[str], new: list[str]) -> str:
    lines = list(difflib.unified_diff(old, new, f"a/{path}", f"b/{path}", lineterm=""))
    if len(lines) > MAX_DIFF_LINES:
        lines[MAX_DIFF_LINES:] = [f"... and {len(lines) - MAX_DIFF_LINES} more lines"]
    return "".join(f"{line}\n" for line in lines)


def _count(unified_diff: str, sign: str) -> int:
    # The first two lines name the files.
    return sum(line.startswith(sign) for line in unified_diff.splitlines()[2:])


# --- Notebooks: the sources of cells are compared, not their outputs ---


def source_lines(text: str) -> list[str] | None:
    """Return the lines of all cells, each cell after a line `# %% [code]`, as Jupytext writes it.

    None for text that is no notebook of format 4. No lines for an empty text, a file that one of
    two runs does not have.
    """
    if not text:
        return []
    try:
        cells = json.loads(text)["cells"]
        return [line for cell in cells for line in _cell(cell)]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def _cell(cell: dict[str, Any]) -> list[str]:
    source = cell["source"]
    lines = (source if isinstance(source, str) else "".join(source)).splitlines()
    return [f"# %% [{cell['cell_type']}]", *lines]


# --- Display of differing values ---


Difference = tuple[str, Any, Any]
"""(dotted path, value in the first run, value in the second)."""


def value_text(value: Any) -> str:
    """Return the value as JSON writes it; a string without quotes."""
    return value if isinstance(value, str) else json.dumps(value, default=str, ensure_ascii=False)
