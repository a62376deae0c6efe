"""What a driver journals of an output in the run's own folder."""

from __future__ import annotations

from pathlib import Path

from llmops_kernel.driver.report import DriverReport
from llmops_kernel.store.outputs.copies import output_events
from llmops_kernel.store.paths import RunFolder
from llmops_kernel.store.record.spec import RunSpec


def test_scores_that_only_a_node_has_are_offered_beside_the_journal(tmp_path: Path) -> None:
    root, logs = tmp_path / "pod", tmp_path / "logs"
    folder = root / "output"
    folder.mkdir(parents=True)
    (folder / "part-0.parquet").write_bytes(b"rows")
    spec = RunSpec(run_id="r", attempt=1, config={}, run_root=str(tmp_path / "no"), submitted_s=1.0)
    DriverReport(spec, logs=logs).wrote(folder, what="scores", size_bytes=4)
    visible = logs / "llmops" / "r"
    seen = tmp_path / "seen"
    seen.mkdir()
    (seen / "journal").symlink_to(visible)
    (event,) = output_events(RunFolder(seen))
    assert (event.place, event.what, event.path) == ("node", "scores", str(folder))
    assert [(file.name, file.size_bytes) for file in event.files] == [("part-0.parquet", 4)]
    assert [part.read_bytes() for part in (visible / "outputs").iterdir()] == [b"rows"]
