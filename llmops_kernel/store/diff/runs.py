"""The differences between two runs: config, code and environment."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from llmops_kernel.config.counted import counted
from llmops_kernel.errors import inert
from llmops_kernel.store.diff.files import ABSENT, Difference, FileChange, file_changes, value_text
from llmops_kernel.store.record.record import RunRecord
from llmops_kernel.store.store import RunStore


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
        return f'<div class="llmops-diff">{"".join(tables)}{changes_html(self.code)}</div>'

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
