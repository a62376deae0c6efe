"""The pages of the documentation and their examples, without Sphinx."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from docs import generate

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


@cache
def generated() -> dict[str, str]:
    """Return path below `docs/` -> text of each page that is made from code or another file."""
    return generate.pages()


@cache
def written() -> dict[str, str]:
    """Return the same of each page that is written by hand."""
    files = (path.relative_to(DOCS) for path in DOCS.rglob("*.md"))
    names = (path.as_posix() for path in files if path.parts[0] not in ("_build", "generate"))
    return {name: (DOCS / name).read_text() for name in sorted(set(names) - generated().keys())}


def examples(language: str) -> list[tuple[str, str]]:
    """Return (page, text) of each code block in that language, README's first."""
    pages = {"README.md": (ROOT / "README.md").read_text(), **written(), **generated()}
    pattern = re.compile(rf"^( *)```{language}\n(.*?)^ *```$", re.DOTALL | re.MULTILINE)
    return [
        (page, "\n".join(line.removeprefix(match[1]) for line in match[2].splitlines()))
        for page, text in pages.items()
        if page.endswith(".md")
        for match in pattern.finditer(text)
    ]
