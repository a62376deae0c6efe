"""Pages that are other files of the repository: what links to them there links to them here."""

from __future__ import annotations

import os
import posixpath
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
COPIES = {
    "SECURITY.md": "why/threat-model.md",
    "CONTRIBUTING.md": "contributing/guide.md",
    "CHANGELOG.md": "contributing/changelog.md",
    "tests/benchmarks/README.md": "figures.md",
    "tests/train/README.md": "reference/combinations.md",
}
"""File of the repository -> its page."""
TITLES = {
    "contributing/changelog.md": "Changes",
    "contributing/guide.md": "Working on the code",
    "figures.md": "Figures",
    "why/threat-model.md": "Threat model",
}


def pages() -> dict[str, str]:
    """Return the copies, with the links of their new places, and the notebooks as they are."""
    copies = {
        page: relinked((ROOT / source).read_text(encoding="utf-8"), source=source, page=page)
        for source, page in COPIES.items()
    }
    for page, title in TITLES.items():
        copies[page] = re.sub(r"\A# .*", f"# {title}", copies[page])
    if os.environ.get("DOCS_EXECUTE"):  # The Makefile has run them.
        return copies
    notebooks = sorted((ROOT / "notebooks").glob("*.ipynb"))
    return copies | {
        f"tutorials/{path.name}": path.read_text(encoding="utf-8") for path in notebooks
    }


def relinked(text: str, *, source: str, page: str) -> str:
    """Return a text whose links to files of the repository are right on a page below `docs/`."""

    def link(match: re.Match[str]) -> str:
        address, anchor = match[1], match[2] or ""
        target = posixpath.normpath(posixpath.join(posixpath.dirname(source), address))
        if "://" in address or not (ROOT / target).is_file():
            return match[0]
        place = COPIES.get(target, posixpath.join("..", target))
        return f"]({posixpath.relpath(place, os.path.dirname(page) or '.')}{anchor})"

    return re.sub(r"\]\(([^)\s#]+)(#[^)\s]*)?\)", link, text)
