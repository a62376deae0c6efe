"""What of a notebook is compared: the sources of its cells, not their outputs."""

from __future__ import annotations

import json
from typing import Any


def source_lines(text: str) -> list[str] | None:
    """Return the lines of all cells, each cell after a line `# %% [code]`, as Jupytext writes it.

    None for text that is no notebook of format 4. No lines for an empty text, a file that one of
    two runs does not have.
    """
    if not text:
        return []
    try:
        cells = json.loads(text)["cells"]
        return [line for cell in cells for line in _cell(cell)]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def _cell(cell: dict[str, Any]) -> list[str]:
    source = cell["source"]
    lines = (source if isinstance(source, str) else "".join(source)).splitlines()
    return [f"# %% [{cell['cell_type']}]", *lines]
