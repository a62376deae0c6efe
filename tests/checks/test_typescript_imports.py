"""No circle of files in the Lab extension; type-only imports count."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.checks.tracked import ROOT

SOURCES = ROOT / "extension" / "src"
_IMPORT = re.compile(r"(?:from|import)\s+'(\.[^']+)'")


def imports_of(file: Path) -> list[Path]:
    """Return the sources that a file imports."""
    targets = []
    for name in _IMPORT.findall(file.read_text(encoding="utf-8")):
        base = (file.parent / name).resolve()
        candidates = [base.with_name(base.name + end) for end in (".ts", ".tsx")]
        targets += [path for path in [*candidates, base / "index.ts"] if path.is_file()]
    return targets


def circles(sources: Path) -> list[list[str]]:
    """Return each chain of imports that comes back to where it started."""
    files = [path for path in sources.resolve().rglob("*.ts*") if "__tests__" not in path.parts]
    graph = {path: imports_of(path) for path in files}
    done: set[Path] = set()
    found: list[list[str]] = []

    def visit(file: Path, way: list[Path]) -> None:
        if file in way:
            circle = [*way[way.index(file) :], file]
            found.append([path.relative_to(sources.resolve()).as_posix() for path in circle])
        elif file not in done:
            for target in graph.get(file, []):
                visit(target, [*way, file])
            done.add(file)

    for file in files:
        visit(file, [])
    return found


def test_the_extension_has_none() -> None:
    assert circles(SOURCES) == []


@pytest.mark.parametrize("word", ["import { b } from", "import type { b } from", "export * from"])
def test_a_circle_is_found(tmp_path: Path, word: str) -> None:
    (tmp_path / "a.ts").write_text(f"{word} './b';\n")
    (tmp_path / "b.tsx").write_text("import './c';\n")
    (tmp_path / "c.ts").write_text("import { a } from './a';\n")
    (circle,) = circles(tmp_path)
    assert (circle[0], set(circle)) == (circle[-1], {"a.ts", "b.tsx", "c.ts"})
