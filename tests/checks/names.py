"""Variables and parameters are named after the thing, not `found`, `wanted`, `asked` or `made`.

Run it by `python -m tests.checks.names`. A package may have as many of these names as it had when
the check was written, so that their number can only fall: lower its ceiling with it.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.checks.tracked import ROOT, tracked_files

PACKAGE = ROOT / "llmops_kernel"
BANNED = {"found", "wanted", "asked", "made"}
CEILINGS = {
    "api": 8,
    "cli": 5,
    "config": 18,
    "driver": 1,
    "errors.py": 1,
    "export": 13,
    "providers": 6,
    "score_env": 1,
    "services": 7,
    "train": 4,
    "views": 1,
    "warm": 1,
    "widgets": 1,
}
"""Number of these names by package of `llmops_kernel`; 0 for those that are not listed."""


def banned_names(path: Path) -> Iterator[tuple[int, str]]:
    """Yield line and name of each assignment, loop variable, field or parameter with one."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"), filename=str(path))):
        if isinstance(node, ast.arg) and node.arg in BANNED:
            yield node.lineno, node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in BANNED:
            yield node.lineno, node.id


def counts(paths: list[Path]) -> Counter[str]:
    """Return the number of banned names by package."""
    number: Counter[str] = Counter()
    for path in paths:
        number[path.relative_to(PACKAGE).parts[0]] += len(list(banned_names(path)))
    return number


def too_many(number: Counter[str]) -> list[str]:
    """Return one line for each package above its ceiling."""
    return [
        f"llmops_kernel/{package}: {count} variables named {', '.join(sorted(BANNED))};"
        f" at most {CEILINGS.get(package, 0)} are allowed. Name the thing: rows, match, request"
        for package, count in sorted(number.items())
        if count > CEILINGS.get(package, 0)
    ]


def checked_files() -> list[Path]:
    """Return the Python files of the package, without those that `llmops init` gives to users."""
    files = [path for path in tracked_files() if path.suffix == ".py" and PACKAGE in path.parents]
    return [path for path in files if "gallery" not in path.parts]


def main() -> int:
    """Print the packages above their ceilings; return the exit status."""
    number = counts(checked_files())
    problems = too_many(number)
    print("\n".join(problems) or f"names: {number.total()} of {', '.join(sorted(BANNED))} left")
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main())
