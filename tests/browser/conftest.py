"""One JupyterLab and one Chromium for all browser tests; skipped where there is none."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.browser.lab import CHROMIUM, FLAGS, Lab, Notebook


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if not Path(CHROMIUM).exists():
        pytest.skip(f"no Chromium at {CHROMIUM}: apt-get install chromium")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def lab(chromium: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    pytest.importorskip("jupyterlab", reason="jupyterlab is not installed")
    server = Lab(tmp_path_factory.mktemp("lab"))
    try:
        server.wait()
        yield server
    finally:
        server.stop()


@pytest.fixture
def errors() -> list[str]:
    """What the page's console complained about."""
    return []


@pytest.fixture
def lab_page(chromium: Any, errors: list[str]) -> Iterator[Any]:
    page = chromium.new_page(viewport={"width": 1280, "height": 1000})
    page.on("console", lambda m: errors.append(m.text) if m.type == "error" else None)
    page.on("pageerror", lambda error: errors.append(str(error)))
    yield page
    page.close()


@pytest.fixture
def notebook(lab: Lab, lab_page: Any) -> Any:
    """Opens a new notebook with the given cells."""

    def open_notebook(name: str, *cells: str) -> Notebook:
        lab.write(name, *cells)
        opened = Notebook(lab_page, lab, name)
        opened.open()
        return opened

    return open_notebook
