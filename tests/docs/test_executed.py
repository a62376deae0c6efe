"""A notebook that was run becomes a page: its outputs give Sphinx nothing to warn of."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from llmops_kernel.views.saved_run import MIME_TYPE
from tests.docs.pages import ROOT

PNG = base64.b64encode(b"a picture").decode()


@pytest.mark.parametrize(("builder", "shown"), [("html", "<img"), ("markdown", "the panel")])
def test_live_panels_and_tables_of_a_notebook_are_on_its_page(
    tmp_path: Path, builder: str, shown: str
) -> None:
    for package in ("myst_nb", "sphinx_book_theme", "sphinx_markdown_builder"):
        pytest.importorskip(package, reason="make .venv/.stamps/docs")
    panel = {MIME_TYPE: {"run": "a"}, "image/png": PNG, "text/plain": "the panel"}
    table = {"text/html": "<b>the table</b>", "text/plain": "the table"}
    stream: dict[str, Any] = {"output_type": "stream", "name": "stdout"}
    outputs = [stream | {"text": f"line {n}\n"} for n in (1, 2)]
    shows: dict[str, Any] = {"output_type": "display_data", "metadata": {}}
    outputs += [shows | {"data": data} for data in (panel, table)]
    cells = [
        {"cell_type": "markdown", "metadata": {}, "source": "# Tried"},
        {
            "cell_type": "code",
            "metadata": {},
            "source": "run",
            "execution_count": 1,
            "outputs": outputs,
        },
    ]
    language = {"language_info": {"name": "python", "pygments_lexer": "ipython3"}}
    notebook = {"nbformat": 4, "nbformat_minor": 4, "metadata": language, "cells": cells}
    (tmp_path / "index.ipynb").write_text(json.dumps(notebook))
    command = [sys.executable, "-m", "sphinx", "--fail-on-warning", "--quiet"]
    done = subprocess.run(
        [*command, "-c", str(ROOT / "docs"), "-b", builder, str(tmp_path), str(tmp_path / "out")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    page = next((tmp_path / "out").glob("index.*")).read_text()
    assert "the table" in page
    assert "line 1\nline 2" in page.replace("</span>", "").replace("<span>", "")
    assert shown in page
