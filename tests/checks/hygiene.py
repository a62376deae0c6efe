"""Find what must not be committed: registry addresses, machine paths, notebook outputs.

The user chooses the registry (`PIP_INDEX_URL`); a file that names one breaks every
machine that cannot reach it.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.checks.tracked import ROOT, tracked_files

FORBIDDEN = {
    "address of a package registry": re.compile(
        r"https?://[\w.-]*(?:pypi|pythonhosted|npmjs|yarnpkg|pytorch)\.(?:org|com)/(?:simple|whl|packages|@|-)"
        r"|https?://registry\.\w+"
    ),
    "pip option that names a registry": re.compile(
        r"^\s*--(?:index-url|extra-index-url|find-links)\b", re.MULTILINE
    ),
    "lock file entry with an address": re.compile(r'"?resolved"?:? "https?://'),
    "path of one machine": re.compile(r"(?<![\w.])/(?:work|home/\w+|Users/\w+)/"),
}
BINARY = {".png", ".gif", ".webp", ".jpg", ".ico", ".zip", ".whl", ".parquet", ".gz", ".woff2"}


def violations(paths: list[Path]) -> list[str]:
    """Return one line for each finding: file, line, what it is."""
    return [finding for path in paths for finding in _findings(path)]


def _findings(path: Path) -> Iterator[str]:
    text = path.read_text(encoding="utf-8")
    for what, pattern in FORBIDDEN.items():
        for match in pattern.finditer(text):
            line = text.count("\n", 0, match.start()) + 1
            yield f"{path}:{line}: {what}: {match.group().strip()}"
    if path.suffix == ".ipynb":
        yield from _outputs(path, json.loads(text))


def _outputs(path: Path, notebook: dict[str, object]) -> Iterator[str]:
    cells = notebook.get("cells")
    for number, cell in enumerate(cells if isinstance(cells, list) else [], start=1):
        if cell.get("outputs") or cell.get("execution_count"):
            yield f"{path}: cell {number} carries outputs; strip them before the commit"


def checked_files() -> list[Path]:
    own = {Path(__file__), ROOT / "tests" / "checks" / "test_checks.py"}
    return [p for p in tracked_files() if p.suffix not in BINARY and p not in own]


def main() -> int:
    problems = violations(checked_files())
    print("\n".join(problems) or "hygiene: no registry address, machine path or notebook output")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
