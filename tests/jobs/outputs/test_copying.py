"""Small outputs of a run come to the run folder: in parts, once, and whole or not at all."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from llmops_kernel.errors import ClusterUnreachableError, StoreError
from llmops_kernel.jobs.client import JobsClient
from llmops_kernel.jobs.follow import Follower
from llmops_kernel.jobs.history import only_copies, runs_to_archive
from llmops_kernel.jobs.mirror import JournalMirror, copy_outputs
from llmops_kernel.store.outputs import PART_BYTES, output_events
from llmops_kernel.store.paths import RunFolder
from llmops_kernel.store.store import RunStore
from tests.jobs.conftest import MakeRun
from tests.jobs.outputs.folder_dashboard import FolderDashboard
from tests.jobs.outputs.output_job import write
from tests.waiting import until

NAMES = ["adapter.safetensors", "tokenizer/vocab.json"]
Ran = Callable[..., RunFolder]


@pytest.fixture
def head(tmp_path: Path) -> Iterator[FolderDashboard]:
    with FolderDashboard(tmp_path / "logs") as answering:
        yield answering


@pytest.fixture
def client(head: FolderDashboard) -> Iterator[JobsClient]:
    with JobsClient(head.connection) as opened:
        yield opened


@pytest.fixture
def ran(store: RunStore, make_run: MakeRun, head: FolderDashboard, tmp_path: Path) -> Ran:
    """A run that has ended on the cluster; with `known` its journal is here already."""

    def run(
        run_id: str = "r", *, num_bytes: int = 1000, known: bool = True, kept_at: str = ""
    ) -> RunFolder:
        folder = store.folder(make_run(run_id, provider="elsewhere"))
        pod = tmp_path / "pod" / run_id
        write(run_id, pod, num_bytes, logs=head.logs, kept_at=kept_at)
        if known:
            with JournalMirror(head.connection, run_id=run_id, journal=folder.journal) as mirror:
                mirror.sync()
        return folder

    return run


def parts_of(head: FolderDashboard, run_id: str = "r") -> list[Path]:
    return sorted((head.logs / "llmops" / run_id / "outputs").iterdir())


def is_copied(folder: RunFolder, tmp_path: Path) -> bool:
    on_node = tmp_path / "pod" / folder.root.name
    return all((folder.output / n).read_bytes() == (on_node / n).read_bytes() for n in NAMES)


def _num_outputs(follower: Follower) -> int:
    follower.poll()
    return len(follower.view.outputs)


def test_a_follower_copies_at_the_end_of_the_run(
    ran: Ran, head: FolderDashboard, store: RunStore, tmp_path: Path
) -> None:
    folder = ran(known=False)
    with Follower(store, "r", connection=head.connection) as follower:
        for _ in follower.follow(interval_s=0.05, timeout_s=60):
            pass
        shown = [(one.path, one.copied_from, one.place) for one in follower.view.outputs]
    on_node = str(tmp_path / "pod/r")
    assert shown == [(on_node, "", "node"), (str(folder.output), on_node, "")]
    assert is_copied(folder, tmp_path)
    modes = {path.stat().st_mode & 0o777 for path in folder.output.rglob("*") if path.is_file()}
    assert (modes, folder.output.stat().st_mode & 0o777) == ({0o600}, 0o700)


def test_the_next_command_goes_on_where_a_copy_was_broken_off(
    ran: Ran, head: FolderDashboard, client: JobsClient, store: RunStore, tmp_path: Path
) -> None:
    folder = ran(num_bytes=3 * PART_BYTES)
    head.breaks_off = ".002"
    with pytest.raises(ClusterUnreachableError):
        copy_outputs(client, folder)
    assert not folder.output.exists(), "half of an output is not shown"
    head.breaks_off, head.read = "", []
    with Follower(store, "r", connection=head.connection) as follower:
        until(lambda: _num_outputs(follower) == 2)
    assert head.read == ["002", "000"], "of the large file the last part, then the small one"
    assert is_copied(folder, tmp_path)
    assert copy_outputs(client, folder) == []
    assert len(output_events(folder)) == 2


def test_other_bytes_than_announced_are_not_kept(
    ran: Ran, head: FolderDashboard, client: JobsClient, store: RunStore, tmp_path: Path
) -> None:
    folder = ran()
    whole = {part: part.read_bytes() for part in parts_of(head)}
    for part in whole:
        part.write_bytes(bytes(part.stat().st_size))
    with pytest.raises(StoreError, match="SHA-256"):
        copy_outputs(client, folder)
    assert not folder.output.exists()
    assert runs_to_archive(store, "local") == ("r",)
    for part, data in whole.items():
        part.write_bytes(data)
    assert len(copy_outputs(client, folder)) == 1
    assert is_copied(folder, tmp_path)


def test_parts_that_no_node_has_any_more_hold_up_nothing(
    ran: Ran, head: FolderDashboard, client: JobsClient
) -> None:
    folder = ran()
    parts_of(head)[0].unlink()
    assert copy_outputs(client, folder) == []
    assert [one.copied_from for one in output_events(folder)] == [""]


@pytest.mark.parametrize("kept_at", ["/mnt/team/llmops/r/output", "s3://bucket/llmops/r/output"])
def test_what_storage_keeps_comes_home_too_where_this_machine_does_not_see_it(
    ran: Ran, client: JobsClient, store: RunStore, tmp_path: Path, kept_at: str
) -> None:
    folder = ran(kept_at=kept_at)
    assert only_copies(store, "local") == ()
    (event,) = copy_outputs(client, folder)
    assert (event.path, event.copied_from) == (str(folder.output), kept_at)
    assert is_copied(folder, tmp_path)


def test_a_machine_that_mounts_the_storage_copies_nothing(
    ran: Ran, client: JobsClient, tmp_path: Path
) -> None:
    (tmp_path / "mnt").mkdir()
    folder = ran(kept_at=str(tmp_path / "mnt"))
    assert copy_outputs(client, folder) == []
    assert not folder.output.exists()
