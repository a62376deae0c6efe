"""What an engine writes down about itself."""

from __future__ import annotations

import json
from pathlib import Path

from llmops_kernel.score.engine_actor import EngineNote
from llmops_kernel.store.engine_names import NOTES


def test_a_note_is_written_when_it_changes_and_is_removed_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / NOTES / "engine-1-0.json"
    note = EngineNote(tmp_path, "engine-1-0")
    note.write({"state": "busy"})
    path.unlink()
    note.write({"state": "busy"})
    assert not path.exists()
    note.write({"state": "idle"})
    assert json.loads(path.read_text()) == {"state": "idle"}
    note.remove()
    assert list(path.parent.iterdir()) == []
    note.remove()


def test_without_a_folder_or_on_a_full_disk_nothing_is_raised(tmp_path: Path) -> None:
    EngineNote(None, "engine-1-0").write({"state": "busy"})
    EngineNote(None, "engine-1-0").remove()
    (tmp_path / NOTES).write_text("a file where the folder should be")
    EngineNote(tmp_path, "engine-1-0").write({"state": "busy"})
    EngineNote(tmp_path, "engine-1-0").remove()
