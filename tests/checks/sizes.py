"""Find files and functions that grew too long; `python -m tests.checks.sizes` lists them."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.checks.tracked import tracked_files

MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 40
SUFFIXES = {".py", ".js", ".ts", ".tsx", ".css", ".sh"}
# Code of others, kept as it came.
VENDORED = ("uPlot", "vendor/")
# Written by `make wire`, one block a wire model; nobody reads it from top to bottom.
GENERATED = ("extension/src/wire.ts",)


def too_long(paths: list[Path]) -> list[str]:
    """One line for each offender, with its length and the limit."""
    return [problem for path in paths for problem in _problems(path)]


def _problems(path: Path) -> Iterator[str]:
    text = path.read_text(encoding="utf-8")
    lines = len(text.splitlines())
    if lines >= MAX_FILE_LINES:
        yield f"{path}: {lines} lines, must stay under {MAX_FILE_LINES}"
    if path.suffix != ".py":
        return
    for node in ast.walk(ast.parse(text, filename=str(path))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length >= MAX_FUNCTION_LINES:
                yield (
                    f"{path}:{node.lineno}: {node.name} has {length} lines,"
                    f" must stay under {MAX_FUNCTION_LINES}"
                )


def checked_files() -> list[Path]:
    return [
        path
        for path in tracked_files()
        if path.suffix in SUFFIXES
        and not any(part in path.as_posix() for part in VENDORED)
        and not path.as_posix().endswith(GENERATED)
    ]


def main() -> int:
    problems = too_long(checked_files())
    print("\n".join(problems) or "sizes: every file and function is short enough")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
