"""Runs a notebook from top to bottom as papermill runs it, and reads its cells."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Collection, Mapping
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
NOTEBOOKS, ARTIFACTS = ROOT / "notebooks", ROOT / "test-artifacts"
STATIC = frozenset({"text/plain", "text/html", "text/markdown", "image/png", "image/svg+xml"})
"""What a viewer shows without a kernel."""


def code_cells(path: Path) -> list[dict[str, Any]]:
    cells = json.loads(path.read_text())["cells"]
    return [cell for cell in cells if cell["cell_type"] == "code"]


def output(cells: list[dict[str, Any]], source: str) -> str:
    """All outputs of the cells that contain the words, as JSON."""
    return "".join(
        json.dumps(output)
        for cell in cells
        if source in "".join(cell["source"])
        for output in cell["outputs"]
    )


def check_template(name: str, parameters: Collection[str]) -> None:
    """A shipped notebook has one cell with the parameters, and no outputs."""
    cells = code_cells(NOTEBOOKS / name)
    [tagged] = [cell for cell in cells if "parameters" in cell["metadata"].get("tags", ())]
    for parameter in parameters:
        assert f"{parameter} = " in "".join(tagged["source"])
    assert all(not cell["outputs"] and cell["execution_count"] is None for cell in cells)


def run_notebook(name: str, parameters: Mapping[str, Any], folder: Path) -> list[dict[str, Any]]:
    """Run a copy in `folder`, which is made; return its code cells with their outputs."""
    shutil.copytree(NOTEBOOKS, folder, ignore=shutil.ignore_patterns("my-*"))
    given = [word for name, value in parameters.items() for word in ("-p", name, str(value))]
    command = [sys.executable, "-m", "papermill", name, "result.ipynb", *given]
    done = subprocess.run(
        [*command, "--no-progress-bar"], cwd=folder, capture_output=True, text=True, timeout=400
    )
    assert done.returncode == 0, done.stderr[-4000:]
    check_static_page(folder / "result.ipynb", ARTIFACTS / f"notebook-{Path(name).stem}.html")
    return code_cells(folder / "result.ipynb")


def check_static_page(notebook: Path, page: Path) -> None:
    """Write the notebook as a page without JavaScript, as viewers show it; all outputs are there.

    The page is kept, to be looked at.
    """
    from nbconvert import HTMLExporter

    html, _ = HTMLExporter(template_name="classic").from_filename(str(notebook))
    page.parent.mkdir(exist_ok=True)
    page.write_text(html)
    seen = _Seen()
    seen.feed(html)
    assert not seen.remote, f"a viewer without a network does not show {seen.remote}"
    for cell in code_cells(notebook):
        for one in cell["outputs"]:
            data = one.get("data", {"text/plain": one.get("text", "")})
            assert STATIC & data.keys(), f"only a live kernel shows {sorted(data)}"
            text = "".join(data.get("text/plain", ""))
            alone = STATIC & data.keys() == {"text/plain"}
            assert not (alone and " object at 0x" in text), text
    pictures = sum(
        "image/png" in one.get("data", {})
        for cell in code_cells(notebook)
        for one in cell["outputs"]
    )
    assert seen.pictures >= pictures


class _Seen(HTMLParser):
    """Pictures of a page, and addresses elsewhere that it loads something visible from."""

    def __init__(self) -> None:
        super().__init__()
        self.pictures = 0
        self.remote: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        source = dict(attrs).get("src") or ""
        if tag == "img":
            self.pictures += 1
        if tag in ("img", "iframe", "video") and "://" in source.split(",")[0]:
            self.remote.append(source)
