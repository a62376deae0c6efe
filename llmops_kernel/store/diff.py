"""The differences between two runs: files, config, code and environment."""

from __future__ import annotations

import difflib
import json
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from html import escape
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from llmops_kernel.config.counted import counted
from llmops_kernel.errors import inert
from llmops_kernel.store.package.assets import ASSETS_FILE, Assets
from llmops_kernel.store.record import RunRecord
from llmops_kernel.store.store import RunStore

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


# --- The differences between two runs: config, code and environment ---


@dataclass(frozen=True, kw_only=True, repr=False)
class RunDiff:
    """Shows itself as text where it is printed, and as tables in a notebook."""

    a: str
    b: str
    config: list[Difference]
    """(dotted path, value in a, value in b), by path."""
    code: list[FileChange]
    """All workspace files that differ; those that are no code say so."""
    environment: list[Difference]
    names: tuple[str, str] = ("", "")
    """What a and b are called besides their ids; empty where nobody said it."""
    prediction: str = ""
    """What a's verdict has predicted of the change to b, beside what was measured; empty where it
    has proposed another, or none."""

    @property
    def heads(self) -> tuple[str, str]:
        """Name and id of a and of b."""
        (a, b), (name_a, name_b) = (self.a, self.b), self.names
        return _head(a, name_a), _head(b, name_b)

    @property
    def is_empty(self) -> bool:
        return not (self.config or self.code or self.environment)

    def text(self, *, with_code: bool = True) -> str:
        """Return the text for terminals: `-` lines belong to a, `+` lines to b.

        Without the code, files that differ are only named.
        """
        a, b = self.heads
        if self.is_empty:
            return f"{a} and {b}: same config, code and environment"
        lines = [f"- {a}", f"+ {b}"]
        for title, rows in (("config", self.config), ("environment", self.environment)):
            if rows:
                lines += ["", title]
                lines += [line for row in rows for line in _row_text(row)]
        if self.prediction:
            lines += ["", self.prediction]
        code = [change for change in self.code if change.is_code]
        for title, changes in (("code", code), ("other files", self._data_changes)):
            if changes:
                lines += ["", title, *map(_change_text, changes)]
        if with_code and code:
            lines += ["", self.code_text()]
        return "\n".join(lines)

    def code_text(self) -> str:
        """Return the changed lines of code; empty where no code differs."""
        code = (change for change in self.code if change.is_code)
        return "\n\n".join(change.unified_diff.rstrip() for change in code)

    @property
    def _data_changes(self) -> list[FileChange]:
        return [change for change in self.code if not change.is_code]

    def to_html(self) -> str:
        """Return the same as one self-contained element; every value is escaped."""
        if self.is_empty:
            return f"<p>{escape(self.text())}</p>"
        a, b = self.heads
        tables = (
            table_html(title, rows, a=a, b=b)
            for title, rows in (("config", self.config), ("environment", self.environment))
        )
        held = f"<p>{escape(self.prediction)}</p>" if self.prediction else ""
        return f'<div class="llmops-diff">{"".join(tables)}{held}{changes_html(self.code)}</div>'

    def __repr__(self) -> str:
        return inert(self.text())

    def _repr_html_(self) -> str:
        return self.to_html()


def _head(run_id: str, name: str) -> str:
    return run_id if name in ("", run_id) else f"{name} ({run_id})"


def diff_runs(store: RunStore, a: str, b: str) -> RunDiff:
    """Compare two runs by their records and kept packages. Raises RunNotFoundError."""
    first, second = store.record(a), store.record(b)
    return RunDiff(
        a=first.run_id,
        b=second.run_id,
        config=differences(first.config, second.config),
        code=file_changes(first, second, packages=store.packages),
        environment=differences(_environment(first), _environment(second)),
    )


def differences(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[Difference]:
    """Return the differences by flattened dotted path."""
    values_a, values_b = dict(_flat(a)), dict(_flat(b))
    pairs = (
        (key, values_a.get(key, ABSENT), values_b.get(key, ABSENT)) for key in values_a | values_b
    )
    return sorted(((k, x, y) for k, x, y in pairs if x != y), key=lambda row: row[0])


def _flat(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping) and (value or not path):
        for key, inner in value.items():
            yield from _flat(inner, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list | tuple) and any(isinstance(v, Mapping) for v in value):
        for number, inner in enumerate(value):
            yield from _flat(inner, f"{path}[{number}]")
    else:
        yield path, list(value) if isinstance(value, tuple) else value


def _environment(record: RunRecord) -> dict[str, Any]:
    return {
        **record.versions,
        "llmops_kernel code": record.package_hash or ABSENT,
        "cluster": record.cluster,
        "host": record.host,
        "git": record.git.model_dump() if record.git else ABSENT,
        "hardware": record.hardware,
    }


def _row_text(row: Difference) -> list[str]:
    path, old, new = row
    return [f"- {path}: {value_text(old)}", f"+ {path}: {value_text(new)}"]


def _change_text(change: FileChange) -> str:
    return f"  {change.kind} {change.path}{f' ({change.counts})' if change.counts else ''}"


# --- Differences between two runs as HTML for notebooks; every value is escaped ---


# Translucent, so that they show on light and dark themes.
_COLOURS = {"+": "rgba(46,160,67,.25)", "-": "rgba(248,81,73,.25)", "@": "rgba(56,139,253,.2)"}


def table_html(title: str, rows: Sequence[Difference], *, a: str, b: str) -> str:
    """Return the values that differ as a table with a column for each run; empty without rows."""
    if not rows:
        return ""
    head = f"<tr><th>{title}</th><th>{escape(a)}</th><th>{escape(b)}</th></tr>"
    body = "".join(
        f"<tr><td>{escape(path)}</td><td>{escape(value_text(old))}</td>"
        f"<td>{escape(value_text(new))}</td></tr>"
        for path, old, new in rows
    )
    return f"<table>{head}{body}</table>"


def changes_html(changes: Sequence[FileChange]) -> str:
    """Return the files that differ: code open, all others behind one line that counts them."""
    code = "".join(_change_html(change, is_open=True) for change in changes if change.is_code)
    data_changes = [change for change in changes if not change.is_code]
    if not data_changes:
        return code
    title = f"{counted(len(data_changes), 'other file')} (data, logs, outputs)"
    inner = "".join(_change_html(change, is_open=False) for change in data_changes)
    return f"{code}<details><summary>{title}</summary>{inner}</details>"


def _change_html(change: FileChange, *, is_open: bool) -> str:
    lines = "".join(_line_html(line) for line in change.unified_diff.splitlines())
    title = f"{change.kind} <code>{escape(change.path)}</code> {change.counts}".rstrip()
    return (
        f"<details{' open' if is_open else ''}><summary>{title}</summary>"
        f'<pre style="overflow-x:auto;line-height:1.4">{lines}</pre></details>'
    )


def _line_html(line: str) -> str:
    colour = _COLOURS.get(line[:1])
    style = f' style="background:{colour}"' if colour else ""
    return f"<span{style}>{escape(line)}</span>\n"
