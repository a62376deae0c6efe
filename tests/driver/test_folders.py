"""Where a script's run keeps its files on a node: shared, in the client's folder, or alone."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from llmops_kernel.driver.storage import offers_to_clients, run_folder
from llmops_kernel.errors import StoreError
from llmops_kernel.store.paths import RUN_STORAGE_ENV_VAR, RunFolder
from llmops_kernel.store.record import RunSpec, shares_run_folder

OWN = Path(tempfile.gettempdir()) / f"llmops-runs-{os.getuid()}"


@pytest.fixture
def spec(tmp_path: Path) -> RunSpec:
    root = tmp_path / "run"
    root.mkdir()
    RunFolder(root).record.write_text('{"run_id": "script-1"}')
    return RunSpec(run_id="script-1", attempt=1, config={}, run_root=str(root), submitted_s=1.0)


def workspace(session: str) -> Path:
    """Return where Ray unpacks a job's files, below the folder of a node's session."""
    return Path(session) / "runtime_resources/working_dir_files/_ray_pkg_0123"


def test_the_clients_folder_is_used_only_where_its_record_is_seen(
    spec: RunSpec, tmp_path: Path
) -> None:
    assert shares_run_folder(spec)
    assert run_folder(spec).root == tmp_path / "run"
    for text in ('{"run_id": "other"}', "[]", "no JSON"):
        RunFolder(tmp_path / "run").record.write_text(text)
        assert not shares_run_folder(spec)
        assert run_folder(spec).root == OWN / "script-1"


def test_a_nodes_own_folder_is_closed_to_others_and_none_that_somebody_else_made(
    spec: RunSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    RunFolder(tmp_path / "run").record.unlink()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    own = tmp_path / OWN.name
    assert run_folder(spec).root == own / "script-1"
    assert own.stat().st_mode & 0o777 == 0o700
    own.chmod(0o777)
    run_folder(spec)
    assert own.stat().st_mode & 0o777 == 0o700
    own.rmdir()
    own.symlink_to(tmp_path / "run")
    with pytest.raises(StoreError, match="belongs to another user") as caught:
        run_folder(spec)
    assert "TMPDIR" in caught.value.remedy


def test_a_storage_folder_comes_first(
    spec: RunSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(RUN_STORAGE_ENV_VAR, str(tmp_path / "shared"))
    assert run_folder(spec).root == tmp_path / "shared" / "script-1"


def test_with_a_bucket_each_node_has_a_folder_of_its_own(
    spec: RunSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(RUN_STORAGE_ENV_VAR, "s3://runs/team")
    here = run_folder(spec, workspace=workspace("/a/ray/session_1")).root
    there = run_folder(spec, workspace=workspace("/b/ray/session_1")).root
    assert here != there
    assert {here.parent, there.parent} == {OWN}
    assert here.name.startswith("script-1-")
    inside = workspace("/a/ray/session_1") / "src"
    assert run_folder(spec, workspace=inside).root == here


def test_outputs_are_offered_where_the_client_does_not_see_the_runs_folder(
    spec: RunSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert offers_to_clients(spec, logs=tmp_path) is None, "the client's own folder"
    RunFolder(tmp_path / "run").record.unlink()
    assert offers_to_clients(spec, logs=tmp_path) == tmp_path / "llmops" / "script-1"
    assert offers_to_clients(spec, logs=None) is None, "no dashboard shows them"
    for storage in ("s3://bucket/runs", str(tmp_path)):
        monkeypatch.setenv(RUN_STORAGE_ENV_VAR, storage)
        assert offers_to_clients(spec, logs=tmp_path) == tmp_path / "llmops" / "script-1"
