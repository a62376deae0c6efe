"""`llmops gc` shows what it would remove, and removes just that."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Llmops


def test_leftovers_are_listed_then_removed(
    llmops: Llmops, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    left = home / "runs" / ".deleted-old-1a2b"
    left.mkdir(parents=True)
    (left / "weights").write_bytes(b"x" * 2000)
    assert llmops("gc", "--dry-run") == 0
    said = capsys.readouterr().out
    assert f"{left} (1.95 KiB, 1 file): a deletion of one of the runs was interrupted" in said
    assert "would be removed: 1 of 1, 1.95 KiB" in said
    assert left.exists()
    assert llmops("gc") == 0
    assert "removed: 1 of 1" in capsys.readouterr().out
    assert not left.exists()
    assert llmops("gc") == 0
    assert "removed: 0 of 0" in capsys.readouterr().out
