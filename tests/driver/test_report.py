"""What a driver journals of an output in the run's own folder, and of what a run lacks."""

from __future__ import annotations

from pathlib import Path

from llmops_kernel.driver.report import DriverReport, with_remedy
from llmops_kernel.metrics.events import FailureEvent
from llmops_kernel.store.outputs import output_events
from llmops_kernel.store.paths import RunFolder
from llmops_kernel.store.record import RunSpec
from tests.messages import missing


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


def _remedy(error: str, message: str, *, ignored: tuple[str, ...] = ()) -> str:
    spec = RunSpec(
        run_id="r", attempt=1, config={}, run_root="/no", submitted_s=1.0, ignored=ignored
    )
    return with_remedy(FailureEvent(error=error, message=message), spec).remedy


def test_a_module_that_is_not_there_has_a_remedy() -> None:
    def about(name: str, *, ignored: tuple[str, ...] = ()) -> str:
        message = f"ModuleNotFoundError: No module named '{name}'"
        return _remedy("ModuleNotFoundError", message, ignored=ignored)

    assert "`packages: [trl]`" in about("trl.trainer")
    assert "--package pillow`" in about("PIL")
    assert missing(about("local.util", ignored=("local/",)), "local/", "workspace") == []
    assert missing(about("secrets", ignored=("secrets.py",)), "secrets.py", "workspace") == []


def test_a_file_that_stayed_at_home_is_named() -> None:
    message = "FileNotFoundError: [Errno 2] No such file or directory: 'data/train.bin'"
    assert _remedy("FileNotFoundError", message) == ""
    remedy = _remedy("FileNotFoundError", message, ignored=("data/",))
    assert remedy.startswith("data/ ")
    assert missing(remedy, "!data/train.bin", ".llmopsignore") == []


def test_what_has_a_remedy_keeps_it() -> None:
    spec = RunSpec(run_id="r", attempt=1, config={}, run_root="/no", submitted_s=1.0)
    failure = FailureEvent(error="ModuleNotFoundError", message="No module named 'x'", remedy="do")
    assert with_remedy(failure, spec) is failure
    hook = failure.model_copy(update={"error": "HookError", "message": "h raised KeyError: 'x'"})
    assert with_remedy(hook, spec) is hook


def test_a_module_that_a_hook_does_not_find_has_a_remedy_too() -> None:
    spec = RunSpec(run_id="r", attempt=1, config={}, run_root="/no", submitted_s=1.0)
    failure = FailureEvent(
        error="HookError",
        message="hooks.py cannot be imported: ModuleNotFoundError: No module named 'sacrebleu'",
        remedy="run the file with Python to see the same error",
    )
    assert "`packages: [sacrebleu]`" in with_remedy(failure, spec).remedy
