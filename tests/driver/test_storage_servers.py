"""The run storage in real servers of three stores: checkpoints, results, and what goes wrong."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from llmops_kernel.driver import report
from llmops_kernel.driver.storage import Bucket, open_bucket
from llmops_kernel.errors import ExportError, StoreError
from llmops_kernel.export.weights import local_result
from llmops_kernel.metrics.events import CheckpointEvent, Event, OutputEvent, WarningEvent
from llmops_kernel.models.fetch import local_folder
from llmops_kernel.store.export_job import ModelSource
from llmops_kernel.store.journal.journal import JournalWriter
from llmops_kernel.store.outputs import only_on_cluster
from llmops_kernel.store.paths import RUN_STORAGE_ENV_VAR
from llmops_kernel.store.record import RunSpec
from llmops_kernel.train.checkpoints import store as keeping
from llmops_kernel.train.checkpoints.resume import resume_path
from llmops_kernel.train.context import WorkerContext
from tests.tables.servers.running import server, store
from tests.tables.servers.start import Store
from tests.train.checkpoints.test_output import save

__all__ = ["server", "store"]
FILES = {
    "weights.safetensors": os.urandom(11 * 2**20),  # More than one piece of an upload.
    "empty.txt": b"",
    ".metadata": b"torch's, of a sharded checkpoint",
    "shards/deep/rank 0.pt": b"a name with a space",
}


@pytest.fixture
def run_id(store: Store, monkeypatch: pytest.MonkeyPatch) -> str:
    """A run of a cluster whose template has `storage.runs` in the store."""
    monkeypatch.setenv(RUN_STORAGE_ENV_VAR, f"{store.scheme}://bucket/team/llmops/")
    return f"run-{uuid.uuid4().hex[:8]}"


def opened(run_id: str) -> Bucket:
    found = open_bucket(run_id)
    assert found is not None
    return found


def node(folder: Path, run_id: str, said: list[Event] | None = None) -> WorkerContext:
    """Rank 0 on a node of its own, which shares only the store with others."""
    return WorkerContext(
        run_id=run_id,
        folder=folder,
        workspace=folder,
        bucket=opened(run_id),
        visible=folder / "logs",
        journal=JournalWriter([folder / "journal"], stream="1-worker-1", attempt=1),
        say=(said if said is not None else []).append,
    )


def write(folder: Path, step: int, files: dict[str, bytes]) -> Path:
    path = folder / "checkpoints" / f"checkpoint-{step}"
    for name, data in files.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(data)
    return path


def test_another_node_goes_on_from_a_checkpoint_that_is_there_whole(
    store: Store, run_id: str, tmp_path: Path
) -> None:
    first = node(tmp_path / "a", run_id)
    path = write(first.folder, 3, FILES)
    kept = keeping.complete_checkpoint(first, path, step=3, num_kept=2)
    assert isinstance(kept, CheckpointEvent)
    url = f"{store.scheme}://bucket/team/llmops/{run_id}"
    assert kept.path == f"{url}/checkpoints/checkpoint-3"
    assert kept.size_bytes == sum(map(len, FILES.values()))
    there = store.names(f"team/llmops/{run_id}/checkpoints/checkpoint-3")
    assert {name: there[name] for name in FILES} == {n: len(data) for n, data in FILES.items()}
    assert set(there) - set(FILES) == {"llmops-complete", "llmops-manifest.json"}
    # Sent by one node, never completed by all.
    opened(run_id).put(write(first.folder, 4, {"weights": b"four"}), "checkpoints/checkpoint-4")

    found = resume_path(node(tmp_path / "b", run_id))
    assert found == tmp_path / "b" / "checkpoints" / "checkpoint-3"
    assert {name: (found / name).read_bytes() for name in FILES} == FILES


def test_one_that_was_damaged_there_is_not_used_and_old_ones_go(
    store: Store, run_id: str, tmp_path: Path
) -> None:
    first = node(tmp_path / "a", run_id)
    for step in (1, 2, 3):
        path = write(first.folder, step, {"weights": f"weights of {step}".encode()})
        keeping.complete_checkpoint(first, path, step=step, num_kept=2)
    assert [one.step for one in opened(run_id).complete()] == [2, 3]
    assert not store.names(f"team/llmops/{run_id}/checkpoints/checkpoint-1")
    store.put(f"team/llmops/{run_id}/checkpoints/checkpoint-3/weights", b"Weights of 3")
    said: list[Event] = []
    found = resume_path(node(tmp_path / "b", run_id, said))
    assert found == tmp_path / "b" / "checkpoints" / "checkpoint-2"
    (warned,) = [event for event in said if isinstance(event, WarningEvent)]
    assert "checkpoint-3 is damaged" in warned.message


def test_the_journal_comes_back_after_the_cluster_was_lost(run_id: str, tmp_path: Path) -> None:
    (tmp_path / "1-driver.jsonl").write_bytes(b'{"kind": "end"}\n')
    spec = RunSpec(run_id=run_id, attempt=1, config={}, run_root="", submitted_s=1.0)
    report.store(spec, [tmp_path / "1-driver.jsonl"])
    again = spec.model_copy(update={"attempt": 2})
    report.recall(again, tmp_path / "new node")
    assert (tmp_path / "new node/1-driver.jsonl").read_bytes() == b'{"kind": "end"}\n'


def test_a_result_is_there_and_is_read_by_export_and_by_a_scoring(
    store: Store, run_id: str, tmp_path: Path, make_config: Callable[..., Any]
) -> None:
    said: list[Event] = []
    save(node(tmp_path / "a", run_id, said), make_config(method="lora"))
    (event,) = (one for one in said if isinstance(one, OutputEvent))
    url = f"{store.scheme}://bucket/team/llmops/{run_id}/output"
    assert (event.path, event.place) == (url, "")
    names = {"adapter_model.safetensors", "tokenizer.json", "config.train.yaml", "README.md"}
    assert set(store.names(f"team/llmops/{run_id}/output")) == names
    # A small one is offered to clients that may not read the store.
    assert {file.name for file in event.files} == names
    result = local_result(ModelSource(what="adapter", location=url), tmp_path / "scratch")
    assert {path.name for path in result.iterdir()} == names
    store.put(f"team/llmops/{run_id}/output/adapter_config.json", b"{}")
    fetched = Path(local_folder(url, tmp_path / "cache"))
    assert (fetched / "adapter_model.safetensors").read_bytes() == b"weights"


def test_output_url_is_another_place_in_the_store(
    store: Store, run_id: str, tmp_path: Path, make_config: Callable[..., Any]
) -> None:
    said: list[Event] = []
    url = f"{store.scheme}://bucket/published"
    save(node(tmp_path / "a", run_id, said), make_config(method="lora", output={"url": url}))
    (event,) = (one for one in said if isinstance(one, OutputEvent))
    assert event.path == f"{url}/{run_id}"
    assert store.names(f"published/{run_id}") == store.names(f"team/llmops/{run_id}/output")
    assert len(store.names(f"published/{run_id}")) == 4


SLOW = (pytest.mark.slow, pytest.mark.beside)


@pytest.mark.parametrize(
    ("server", "fault"),
    [
        ("s3", "no such bucket"),
        ("gcs", "no such bucket"),
        pytest.param("azure", "no such bucket", marks=SLOW),
        ("s3", "nothing answers"),
        pytest.param("azure", "nothing answers", marks=SLOW),
    ],
    indirect=["server"],
)
def test_a_store_that_fails_is_one_error_and_loses_nothing(
    store: Store,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    make_config: Callable[..., Any],
    fault: str,
) -> None:
    url = unusable(store, monkeypatch, fault)
    said: list[Event] = []
    here = node(tmp_path / "a", "run-1", said)

    # Rank 0 says so before the first step.
    with pytest.raises(StoreError, match="The run storage does not work") as at_start:
        resume_path(here)
    assert "storage.runs" in at_start.value.remedy

    # One that fails later: the training goes on, and what the node has is kept.
    path = write(here.folder, 2, {"weights": b"two"})
    kept = keeping.complete_checkpoint(here, path, step=2, num_kept=1)
    assert isinstance(kept, WarningEvent)
    assert "checkpoint of step 2" in kept.message
    assert (path / "weights").read_bytes() == b"two"

    # The result is offered to clients before the run fails.
    with pytest.raises(StoreError, match="result") as raised:
        save(here, make_config(method="lora"))
    for text in (at_start.value.message, kept.message, raised.value.message):
        assert f"{url}/run-1" in text
        assert not any(secret in text for secret in ("a-secret", "Eby8vdM02x", "AccountKey"))
    assert "storage.runs" in raised.value.remedy
    assert "llmops retry" in raised.value.remedy
    (event,) = (one for one in said if isinstance(one, OutputEvent))
    assert (event.path, event.place, len(event.files)) == (str(here.folder / "output"), "node", 4)
    assert only_on_cluster([event]) == [event]
    parts = (here.folder / "logs" / "outputs").iterdir()
    assert sum(part.stat().st_size for part in parts) == event.size_bytes
    with pytest.raises(ExportError, match=r"cannot be read|is gone"):
        local_result(ModelSource(what="adapter", location=f"{url}/run-1/output"), tmp_path)


def unusable(store: Store, monkeypatch: pytest.MonkeyPatch, fault: str) -> str:
    """Set run storage that does not work; return its URL."""
    bucket = "bucket"
    if fault == "no such bucket":
        bucket = "no-such-bucket"
    else:
        for name, value in store.env.items():
            monkeypatch.setenv(name, without_port(value))
    url = f"{store.scheme}://{bucket}/team"
    monkeypatch.setenv(RUN_STORAGE_ENV_VAR, url)
    return url


def without_port(value: str) -> str:
    """Return an address, or a connection string with one, at which nothing listens."""
    before, _, after = value.partition("127.0.0.1:")
    return f"{before}127.0.0.1:9{after.lstrip('0123456789')}" if after else value


@pytest.mark.slow
@pytest.mark.beside
@pytest.mark.nightly
@pytest.mark.parametrize("server", ["gcs"], indirect=True)
def test_googles_store_is_given_up_after_minutes(
    store: Store, run_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = without_port(store.env["STORAGE_EMULATOR_HOST"])
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", address)
    began_s = time.monotonic()
    with pytest.raises(StoreError, match=f"gs://bucket/team/llmops/{run_id} cannot be listed"):
        opened(run_id).complete()
    # Three requests, each of which Arrow repeats for a minute.
    assert time.monotonic() - began_s < 300


# moto and the emulator of Google's store accept every credential.
@pytest.mark.parametrize("server", ["azure"], indirect=True)
def test_wrong_credentials_say_where_to_look(
    store: Store, run_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection = store.env["AZURE_STORAGE_CONNECTION_STRING"]
    monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", connection.replace("Eby8", "AAAA"))
    with pytest.raises(StoreError, match=f"az://bucket/team/llmops/{run_id}") as raised:
        opened(run_id).complete()
    assert "credentials" in raised.value.remedy
    assert "AAAA" not in raised.value.message
