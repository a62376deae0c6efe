"""The registry: old records train, records of a newer version are shown with what all runs have."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from llmops_kernel.errors import SubmissionError
from llmops_kernel.jobs.submit import entrypoint_of
from llmops_kernel.kinds.kind import RunKind
from llmops_kernel.kinds.registry import kind_named, kinds, register, unregister, view_of
from llmops_kernel.store.engine_names import END
from llmops_kernel.store.journal.training_view import TrainingView
from llmops_kernel.store.store import RunStore
from llmops_kernel.views import static_run
from llmops_kernel.views.columns import PackedRows
from llmops_kernel.views.snapshot import snapshot
from llmops_kernel.views.summary import list_runs
from tests.kinds.conftest import add_index_run, add_run, add_training_run


def test_a_record_without_a_kind_is_a_training_run(store: RunStore) -> None:
    run_id = add_training_run(store)
    path = store.folder(run_id).record
    old = {k: v for k, v in json.loads(path.read_text()).items() if k not in ("kind", "hidden")}
    path.write_text(json.dumps(old))
    assert store.record(run_id).kind == "train"
    assert isinstance(view_of(store, run_id), TrainingView)
    assert list_runs(store)[0].figure("loss") is not None


def test_a_kind_of_a_newer_version_is_listed_and_shown_but_not_run(store: RunStore) -> None:
    run_id = add_index_run(store)  # Nobody has registered `index` here.
    (row,) = list_runs(store)
    assert (row.kind, row.state, row.figures) == ("index", "RUNNING", ())
    view = view_of(store, run_id)
    assert snapshot(view, store.record(run_id), now_s=30.0).progress == 0.5
    assert "100 of 200 documents" in static_run.text(view)
    with pytest.raises(SubmissionError, match="'index'"):
        entrypoint_of(kind_named("index"))


def test_hidden_runs_are_listed_only_when_asked_for(store: RunStore) -> None:
    add_run(store, "bench-1", hidden=True)
    add_run(store, "lora-1", created_s=2.0)
    assert [run.run_id for run in list_runs(store)] == ["lora-1"]
    assert [run.run_id for run in list_runs(store, hidden=True)] == ["lora-1", "bench-1"]
    (store.root / "runs.sqlite").unlink()
    assert [run.run_id for run in list_runs(store, limit=1)] == ["lora-1"]


@pytest.mark.parametrize("kind", [kind.name for kind in kinds()])
def test_each_kind_is_whole(kind: str) -> None:
    found = kind_named(kind)
    assert found.title
    assert found.entrypoint.startswith("exec python -m llmops_kernel.")
    names = [column.name for column in found.columns]
    assert len(set(names)) == len(names)
    assert found.curve in names
    keys = [figure.key for figure in found.figures]
    assert len(set(keys)) == len(keys)
    empty = found.view((), kind=kind)
    assert [figure.value(empty) for figure in found.figures] == [None] * len(keys)
    assert set(found.phases) <= found.words.keys()


def test_a_kind_without_columns_has_no_rows(store: RunStore) -> None:
    run_id = add_index_run(store)
    register(RunKind(name="index", title="Index run"))
    try:
        packed = PackedRows()
        packed.sync(view_of(store, run_id))
    finally:
        unregister("index")
    assert (len(packed), packed.rows()) == (0, b"")


@pytest.mark.parametrize("command", [*(one.entrypoint for one in kinds()), END])
def test_the_process_that_ray_starts_is_the_driver(command: str, tmp_path: Path) -> None:
    """Ray watches that one; killed alone, a shell before it left a driver that ran on unseen."""
    program = tmp_path / "python"
    program.write_text("#!/bin/sh\necho $$\n")
    program.chmod(0o755)
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    started = subprocess.Popen(command, shell=True, env=env, stdout=subprocess.PIPE, text=True)
    printed, _ = started.communicate(timeout=30)
    assert int(printed) == started.pid
