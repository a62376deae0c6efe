"""A whole run on a cluster that keeps runs in a bucket: stop, a new Ray, retry, all there."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import llmops_kernel as llmops
from llmops_kernel.config.models.cluster import ClusterTemplate
from llmops_kernel.jobs.follow import Follower
from llmops_kernel.providers.local.provider import LocalProvider
from llmops_kernel.store.journal.journal import read_lines
from llmops_kernel.store.paths import RUN_STORAGE_ENV_VAR
from llmops_kernel.store.store import RunStore
from tests.end_to_end.script_runs import write
from tests.end_to_end.test_scripts import STEPS
from tests.waiting import until

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.beside, pytest.mark.timeout(900)]


@pytest.fixture
def bucket(tmp_path: Path) -> Path:
    return tmp_path / "bucket"


@pytest.fixture
def template(bucket: Path) -> ClusterTemplate:
    env = {RUN_STORAGE_ENV_VAR: f"file://{bucket}"}
    return ClusterTemplate(name="kept", num_cpus=2, env=env)


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Short, for the paths of Ray's sockets."""
    folder = Path(tempfile.mkdtemp(prefix="llmops-h-"))
    monkeypatch.setenv("LLMOPS_HOME", str(folder))
    yield folder
    provider = LocalProvider()
    for name in provider.names():
        provider.down(name)
    shutil.rmtree(folder, ignore_errors=True)


def test_a_run_goes_on_from_the_bucket_after_its_ray_is_gone(
    template: ClusterTemplate, home: Path, bucket: Path, workspace: Path
) -> None:
    LocalProvider().up(template)
    run = llmops.cluster("kept").submit(
        workspace / "chaos.train.yaml",
        overrides=["parallelism.num_workers=1", "training.global_batch_size=2"],
    )
    until(lambda: (run.view.last_step or 0) >= 7)
    run.stop()
    assert run.wait(120) == "STOPPED"
    kept = bucket / run.id
    saved = run.view.checkpoints[-1]
    assert saved.path == f"file://{kept}/checkpoints/checkpoint-{saved.step}"
    names = {path.name for path in (kept / "journal").iterdir()}
    assert {"1-driver.jsonl", "1-worker-1.jsonl"} <= names

    # A follower elsewhere has lost the end of what the first Ray had on its disk.
    journal = run.folder.journal / "1-worker-1.jsonl"
    whole = read_lines(journal.read_bytes())
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join(lines[: len(lines) // 2]))
    provider = LocalProvider()
    provider.down("kept")
    provider.up(template)
    run.retry()
    connection = provider.connect("kept")
    with Follower(RunStore(), run.id, connection=connection, remote=True) as follower:
        until(lambda: follower.poll() is not None and follower.is_over)
        follower.drain()
        assert follower.view.state == "SUCCEEDED"
        assert follower.view.start is not None
        assert follower.view.start.first_step == saved.step + 1
        assert [event.step for event in follower.view.steps] == list(range(1, 25))
    assert [e.seq for e in read_lines(journal.read_bytes())] == [e.seq for e in whole]
    (output,) = follower.view.outputs
    assert output.path == f"file://{kept}/output"
    assert (kept / "output" / "adapter_config.json").exists()
    assert (kept / "journal" / "2-driver.jsonl").exists()


@pytest.mark.nightly
def test_a_script_goes_on_from_the_bucket_on_another_node(
    template: ClusterTemplate, home: Path, bucket: Path, tmp_path: Path
) -> None:
    provider = LocalProvider()
    provider.up(template)
    run = llmops.cluster("kept").submit(write(tmp_path, STEPS), args=["400"], num_workers=2)
    until(lambda: (run.view.last_step or 0) >= 3)
    run.stop()
    assert run.wait(120) == "STOPPED", run.logs()
    kept, saved = bucket / run.id, run.view.checkpoints[-1]
    assert run.view.message == f"Stopped at step {saved.step}, after saving a checkpoint."
    assert saved.path == f"file://{kept}/checkpoints/checkpoint-{saved.step}"
    assert {"1-driver.jsonl", "1-worker-1.jsonl"} <= {f.name for f in (kept / "journal").iterdir()}
    # A client elsewhere has lost the end of what the first Ray had on its disk.
    journal = run.folder.journal / "1-worker-1.jsonl"
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join(lines[: len(lines) // 2]))
    # A new Ray: the folders of its nodes are empty.
    provider.down("kept")
    provider.up(template)
    run.retry()
    connection = provider.connect("kept")
    with Follower(RunStore(), run.id, connection=connection, remote=True) as follower:
        until(lambda: follower.poll() is not None and (follower.view.last_step or 0) > saved.step)
        run.stop()
        until(lambda: follower.poll() is not None and follower.is_over)
        follower.drain()
        assert follower.view.state == "STOPPED", run.logs()
        steps = follower.view.steps
        assert [event.step for event in steps] == list(range(1, steps[-1].step + 1))
        assert next(event.step for event in steps if event.attempt == 2) == saved.step + 1
