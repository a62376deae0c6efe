"""`llmops submit --dry-run`: what would be uploaded, without a cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Llmops, process


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    (folder / ".ssh").mkdir(parents=True)
    (folder / ".ssh" / "id_rsa").write_text("a key")
    (folder / ".git-credentials").write_text("https://me:secret@git.example.com")
    (folder / "train.py").write_text("print(1)\n")
    (folder / "rows.jsonl").write_text('{"text": "a"}\n' * 100)
    return folder


def test_a_dry_run_lists_what_would_be_uploaded_and_what_stays(
    llmops: Llmops, home: Path, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert llmops("submit", "--dry-run", str(project / "train.py"), "--", "--lr", "1e-4") == 0
    said = capsys.readouterr()
    listed = [line.split()[0] for line in said.out.splitlines()[:-1]]
    assert listed == ["rows.jsonl", "train.py"]
    assert f"2 files, 1.38 KiB, would be uploaded from {project}" in said.out
    assert "hold secrets: .git-credentials, .ssh/." in said.err
    assert not list(home.rglob("*.zip"))


def test_a_home_folder_is_refused_with_a_remedy(project: Path) -> None:
    done = process("submit", "--dry-run", str(project / "train.py"), HOME=str(project))
    assert done.returncode == 1
    assert "is your home folder" in done.stderr
    assert "--workspace" in done.stderr
