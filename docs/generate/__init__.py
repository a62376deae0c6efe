"""Writes the pages that are made from code and from other files of the repository.

`write()` puts them beside the pages written by hand; git ignores them. `conf.py` calls it before
Sphinx looks for pages.
"""

from __future__ import annotations

from pathlib import Path

from docs.generate import commands, configs, environment, repository, server

FOLDER = Path(__file__).parents[1]


def pages() -> dict[str, str]:
    """Return path below `docs/` -> text of each generated page."""
    return {
        **configs.pages(),
        **commands.pages(),
        **server.pages(),
        **environment.pages(),
        **repository.pages(),
    }


def write(folder: Path = FOLDER) -> list[Path]:
    """Write the pages that have changed; an unchanged one keeps its time, so Sphinx skips it."""
    changed = []
    for name, text in pages().items():
        path = folder / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            changed.append(path)
    return changed
