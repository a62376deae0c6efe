"""The differences between two runs: config, code and environment."""

from __future__ import annotations

import difflib
import json
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any, Literal

from llmops_kernel.store.package.assets import ASSETS_FILE
from llmops_kernel.store.record.record import RunRecord
from llmops_kernel.store.store import RunStore

ABSENT = "–"
"""Stands for a value that one of the two does not have."""
MAX_DIFF_LINES = 2000

Difference = tuple[str, Any, Any]


@dataclass(frozen=True, kw_only=True)
class FileChange:
    path: str
    kind: Literal["added", "removed", "changed"]
    unified_diff: str
    """Unified difference of text that is kept; else one line with both content hashes."""


@dataclass(frozen=True, kw_only=True)
class RunDiff:
    a: str
    b: str
    config: list[Difference]
    """(dotted path, value in a, value in b), by path."""
    code: list[FileChange]
    environment: list[Difference]

    @property
    def is_empty(self) -> bool:
        return not (self.config or self.code or self.environment)

    def text(self) -> str:
        """Return the text for terminals: `-` lines belong to a, `+` lines to b."""
        if self.is_empty:
            return f"{self.a} and {self.b}: same config, code and environment"
        lines = [f"- {self.a}", f"+ {self.b}"]
        for title, rows in (("config", self.config), ("environment", self.environment)):
            if rows:
                lines += ["", title]
                lines += [line for row in rows for line in _row_text(row)]
        if self.code:
            lines += ["", "code"]
            lines += [f"  {change.kind} {change.path}" for change in self.code]
            lines += [line for change in self.code for line in ("", change.unified_diff.rstrip())]
        return "\n".join(lines)

    def to_html(self) -> str:
        """Return the same as one self-contained element; every value is escaped."""
        if self.is_empty:
            return f"<p>{escape(self.text())}</p>"
        parts = [
            _table_html("config", self.config, a=self.a, b=self.b),
            _table_html("environment", self.environment, a=self.a, b=self.b),
            *(_change_html(change) for change in self.code),
        ]
        return f'<div class="llmops-diff">{"".join(parts)}</div>'


def diff_runs(store: RunStore, a: str, b: str) -> RunDiff:
    """Compare two runs by their records and kept packages. Raises RunNotFoundError."""
    first, second = store.record(a), store.record(b)
    return RunDiff(
        a=first.run_id,
        b=second.run_id,
        config=differences(first.config, second.config),
        code=_code_changes(first, second, packages=store.packages),
        environment=differences(_environment(first), _environment(second)),
    )


def differences(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[Difference]:
    """Return the differences by flattened dotted path."""
    left, right = dict(_flat(a)), dict(_flat(b))
    pairs = ((key, left.get(key, ABSENT), right.get(key, ABSENT)) for key in left | right)
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


def _code_changes(a: RunRecord, b: RunRecord, *, packages: Path) -> list[FileChange]:
    changed = sorted(path for path in a.files | b.files if a.files.get(path) != b.files.get(path))
    with _open(packages, a.code_hash) as old, _open(packages, b.code_hash) as new:
        return [
            FileChange(
                path=path,
                kind="added" if path not in a.files else _gone_or_changed(path, b),
                unified_diff=_unified(path, (a, old), (b, new)),
            )
            for path in changed
            if path != ASSETS_FILE
        ]


def _gone_or_changed(path: str, record: RunRecord) -> Literal["removed", "changed"]:
    return "changed" if path in record.files else "removed"


@contextmanager
def _open(packages: Path, code_hash: str) -> Iterator[zipfile.ZipFile | None]:
    """Open the kept package; None if it is gone or broken."""
    try:
        archive = zipfile.ZipFile(packages / f"{code_hash}.zip")
    except (OSError, zipfile.BadZipFile):
        yield None
        return
    with archive:
        yield archive


_Side = tuple[RunRecord, zipfile.ZipFile | None]


def _unified(path: str, a: _Side, b: _Side) -> str:
    old, new = _text_of(path, a), _text_of(path, b)
    if old is None or new is None:
        left, right = (side[0].files.get(path, ABSENT) for side in (a, b))
        return f"{path}: binary, large or no longer kept; content {left} -> {right}\n"
    lines = list(
        difflib.unified_diff(
            old.splitlines(), new.splitlines(), f"a/{path}", f"b/{path}", lineterm=""
        )
    )
    if len(lines) > MAX_DIFF_LINES:
        lines[MAX_DIFF_LINES:] = [f"... and {len(lines) - MAX_DIFF_LINES} more lines"]
    if not lines and old != new:
        lines = [f"{path}: only line ends differ"]
    return "".join(f"{line}\n" for line in lines)


def _text_of(path: str, side: _Side) -> str | None:
    """Return the file's text; empty if the run has no such file, None if it cannot be shown."""
    record, archive = side
    if path not in record.files:
        return ""
    try:
        data = archive.read(path) if archive is not None else None
    except (KeyError, OSError, zipfile.BadZipFile):
        return None
    if data is None or b"\0" in data:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def _value(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=str, ensure_ascii=False)


def _row_text(row: Difference) -> list[str]:
    path, old, new = row
    return [f"- {path}: {_value(old)}", f"+ {path}: {_value(new)}"]


def _table_html(title: str, rows: list[Difference], *, a: str, b: str) -> str:
    if not rows:
        return ""
    head = f"<tr><th>{title}</th><th>{escape(a)}</th><th>{escape(b)}</th></tr>"
    body = "".join(
        f"<tr><td>{escape(path)}</td><td>{escape(_value(old))}</td><td>{escape(_value(new))}</td></tr>"
        for path, old, new in rows
    )
    return f"<table>{head}{body}</table>"


# Translucent, so that they show on light and dark themes.
_COLOURS = {"+": "rgba(46,160,67,.25)", "-": "rgba(248,81,73,.25)", "@": "rgba(56,139,253,.2)"}


def _change_html(change: FileChange) -> str:
    lines = "".join(_line_html(line) for line in change.unified_diff.splitlines())
    title = f"{change.kind} <code>{escape(change.path)}</code>"
    return (
        f"<details open><summary>{title}</summary>"
        f'<pre style="overflow-x:auto;line-height:1.4">{lines}</pre></details>'
    )


def _line_html(line: str) -> str:
    colour = _COLOURS.get(line[:1])
    style = f' style="background:{colour}"' if colour else ""
    return f"<span{style}>{escape(line)}</span>\n"
