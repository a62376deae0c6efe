"""SECURITY.md names tests and files that exist."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "SECURITY.md").read_text()


def named_tests(page: str) -> Iterator[str]:
    """Yield the paths below `tests` in the table: a name alone is in the folder before it."""
    for row in re.findall(r"^\| .* \| (`.*`) \|$", page, re.MULTILINE):
        folder = ""
        for name in re.findall(r"`([^`]+)`", row):
            folder = name.rpartition("/")[0] or folder
            yield f"{folder}/{name.rpartition('/')[2]}"


def missing_tests(page: str) -> list[str]:
    return [name for name in named_tests(page) if not (ROOT / "tests" / name).is_file()]


def test_every_named_test_exists() -> None:
    assert len(list(named_tests(PAGE))) > 30
    assert missing_tests(PAGE) == []


def test_a_test_that_does_not_exist_would_be_noticed() -> None:
    page = (
        "| what was possible | tests |\n|---|---|\n"
        "| x | `store/test_garbage.py`, `test_workspace.py`, `test_gone.py` |\n"
        "| y, `code` | `server/test_gone.py` |\n"
    )
    assert missing_tests(page) == ["store/test_gone.py", "server/test_gone.py"]


def test_every_named_file_exists() -> None:
    named = set(re.findall(r"`(llmops_kernel/[\w/.]+)`|\]\((?!http)([^)#]+)\)", PAGE))
    names = {first or second for first, second in named}
    assert len(names) > 3
    assert sorted(name for name in names if not (ROOT / name).exists()) == []
