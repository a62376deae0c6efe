"""Find `any` and switched-off checks in the TypeScript sources."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.checks.tracked import ROOT, tracked_files

SOURCES = ROOT / "extension" / "src"
FORBIDDEN = {
    "`any`": re.compile(r"(?::|\bas|[<,|&(=]|=>)\s*any\b(?!\s*[(:.])|\bany\[\]"),
    "a switched-off check": re.compile(r"@ts-(?:ignore|nocheck)"),
}
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_TEXT = re.compile(r"'(?:\\.|[^'\\\n])*'|\"(?:\\.|[^\"\\\n])*\"")


def loose(paths: list[Path]) -> list[str]:
    """One line for each finding: file, line, what it is."""
    return [finding for path in paths for finding in _findings(path)]


def _findings(path: Path) -> Iterator[str]:
    text = path.read_text(encoding="utf-8")
    code = _TEXT.sub(_blank, _COMMENT.sub(_blank, text))
    for what, pattern in FORBIDDEN.items():
        # A switched-off check is written in a comment.
        for match in pattern.finditer(code if what == "`any`" else text):
            yield f"{path}:{text.count(chr(10), 0, match.start()) + 1}: {what}: {match.group()}"


def _blank(match: re.Match[str]) -> str:
    return re.sub(r"[^\n]", " ", match.group())


def checked_files() -> list[Path]:
    return [
        path
        for path in tracked_files()
        if path.suffix in {".ts", ".tsx"} and path.is_relative_to(SOURCES)
    ]


def main() -> int:
    problems = loose(checked_files())
    print("\n".join(problems) or "types: no `any` and no switched-off check in TypeScript")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
