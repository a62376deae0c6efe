"""A real IPython shell with the magics loaded, in a folder with a config."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

CONFIG = """\
name: magic
model: tiny-llama
data: {train: rows.jsonl, max_length: 32}
method: full
training: {micro_batch_size: 2, global_batch_size: 2, max_steps: 2}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "a.train.yaml").write_text(CONFIG)
    (tmp_path / "rows.jsonl").write_text('{"text": "soup of the day"}\n' * 8)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def shell(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[InteractiveShell]:
    monkeypatch.setenv("LLMOPS_HOME", str(folder / "home"))
    monkeypatch.setenv("IPYTHONDIR", str(folder / "ipython"))
    config = Config()
    config.HistoryManager.enabled = False
    made = InteractiveShell.instance(config=config)
    assert made.run_cell("%load_ext llmops_kernel").success
    yield made
    InteractiveShell.clear_instance()
