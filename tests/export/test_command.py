"""`llmops export` as a user calls it, and `run.export` in Python."""

from __future__ import annotations

from pathlib import Path

import llmops_kernel as llmops
from tests.cli.conftest import process
from tests.export.conftest import Store


def test_the_command_reports_progress_and_how_to_use_the_result(
    store: Store, adapter: Path, tmp_path: Path
) -> None:
    run = store.add("adding-1", adapter)
    done = process("export", run[:6], "--path", str(tmp_path / "out"))
    assert done.returncode == 0, done.stderr
    assert "Merging the adapter ..." in done.stderr
    # The line breaks depend on the length of the folder's path.
    assert "4 of 4 greedy answers are unchanged" in " ".join(done.stdout.split())
    code = done.stdout.partition("Use it:\n")[2]
    assert "from_pretrained" in code
    again = process("export", run, "--path", str(tmp_path / "out"))
    assert again.returncode == 1
    assert "exists." in again.stderr
    assert "--force" in again.stderr
    assert "Traceback" not in again.stderr


def test_python_exports_as_the_command_does(store: Store, adapter: Path, tmp_path: Path) -> None:
    store.add("adding-1", adapter)
    seen: list[str] = []
    done = llmops.attach("adding-1").export("merged", tmp_path / "out", progress=seen.append)
    assert done.path == tmp_path / "out"
    assert "README.md" in done.files
    assert done.size_bytes == sum((done.path / name).stat().st_size for name in done.files)
    assert seen[0] == "Loading tiny-llama"
    exec(done.command, {})  # It can be copied into a cell.
