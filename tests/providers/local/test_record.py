from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from llmops_kernel.config.models.cluster import ClusterTemplate
from llmops_kernel.errors import (
    ClusterDeadError,
    ClusterNotFoundError,
    ClusterStartError,
    ConfigError,
)
from llmops_kernel.providers.local.processes import MARK_ENV_VAR, cluster_processes, stop_processes
from llmops_kernel.providers.local.provider import LocalProvider
from llmops_kernel.providers.local.record import cluster_folder
from llmops_kernel.providers.protocol import ClusterState, Connection
from tests.providers.conftest import head_record

SLEEP = [sys.executable, "-c", "import time; time.sleep(60)"]


@pytest.mark.parametrize("name", ["", "../etc", "Lab", "a/b", "-lab", "x" * 41])
def test_a_name_that_is_no_folder_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="cannot be the name"):
        cluster_folder(tmp_path, name)


def test_an_unknown_cluster_is_not_found_and_the_known_ones_are_named(tmp_path: Path) -> None:
    folder = cluster_folder(tmp_path, "lab")
    folder.create()
    folder.write(head_record(tmp_path, host="elsewhere"))
    provider = LocalProvider(tmp_path)
    for action in (provider.get, provider.down, provider.connect):
        with pytest.raises(ClusterNotFoundError, match="lab"):
            action("lap")


def test_a_broken_record_is_no_record(tmp_path: Path) -> None:
    folder = cluster_folder(tmp_path, "lab")
    folder.create()
    (folder.root / "cluster.json").write_text('{"name": "lab"')
    with pytest.raises(ClusterNotFoundError):
        LocalProvider(tmp_path).get("lab")


def test_a_record_and_a_token_are_private(tmp_path: Path) -> None:
    folder = cluster_folder(tmp_path, "lab")
    folder.create()
    folder.write(head_record(tmp_path, host="elsewhere"))
    folder.new_token()
    modes = {path.name: path.stat().st_mode & 0o777 for path in folder.root.iterdir()}
    assert modes == {"cluster.json": 0o600, "token": 0o600}
    assert len(folder.token.read_text()) == 64


def test_a_token_is_not_shown() -> None:
    connection = Connection(dashboard_url="http://127.0.0.1:1", token="hush-hush")
    assert "hush" not in repr(connection)
    assert "hush" not in str(connection)
    assert connection.headers() == {"Authorization": "Bearer hush-hush"}


def test_the_lock_makes_others_wait_and_shows_them_why(tmp_path: Path) -> None:
    folder = cluster_folder(tmp_path, "lab")
    folder.create()
    held = threading.Event()

    def hold() -> None:
        with folder.lock(timeout_s=1):
            held.set()
            time.sleep(0.5)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    reported: list[str] = []
    with pytest.raises(ClusterStartError, match="held the lock"), folder.lock(timeout_s=0.1):
        pass
    with folder.lock(timeout_s=5, waiting=lambda: reported.append("waiting")):
        assert reported == ["waiting"]
    thread.join()


def test_a_number_used_again_is_not_our_head(tmp_path: Path) -> None:
    """The record names a process that lives, but that started at another time."""
    folder = cluster_folder(tmp_path, "lab")
    folder.create()
    stranger = subprocess.Popen(SLEEP, start_new_session=True)
    try:
        record = head_record(tmp_path, pid=stranger.pid, pid_created_s=1.0)
        folder.write(record)
        provider = LocalProvider(tmp_path)
        info = provider.get("lab")
        assert info.state is ClusterState.DEAD
        assert "llmops resume lab" in info.remedy
        with pytest.raises(ClusterDeadError, match="gone"):
            provider.connect("lab")
        assert stranger.pid not in {process.pid for process in cluster_processes(record)}
        assert stop_processes(record, grace_s=1) == []
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def test_a_process_is_ours_by_its_environment_not_by_its_command_line(tmp_path: Path) -> None:
    record = head_record(tmp_path / "head")
    env = os.environ | {MARK_ENV_VAR: str(record.temp_dir)}
    ours = subprocess.Popen(SLEEP, env=env, start_new_session=True)
    reader = subprocess.Popen([*SLEEP, str(record.temp_dir / "raylet.out")])
    other = subprocess.Popen(SLEEP, env=os.environ | {MARK_ENV_VAR: f"{record.temp_dir}2"})
    try:
        time.sleep(0.5)
        assert [process.pid for process in cluster_processes(record)] == [ours.pid]
        assert stop_processes(record, grace_s=1) == []
        assert ours.wait(5) != 0
        assert reader.poll() is None
        assert other.poll() is None
    finally:
        for process in (ours, reader, other):
            process.kill()
            process.wait()


def test_a_head_of_another_host_is_not_claimed_to_be_here(tmp_path: Path) -> None:
    folder = cluster_folder(tmp_path, "lab")
    folder.create()
    folder.write(head_record(tmp_path, host="elsewhere"))
    info = LocalProvider(tmp_path).get("lab")
    assert info.state is ClusterState.DEAD
    assert "elsewhere" in info.message


def test_a_home_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(ClusterStartError, match="Cannot write") as caught:
        LocalProvider(file).up(ClusterTemplate(name="lab"))
    assert "LLMOPS_HOME" in caught.value.remedy
