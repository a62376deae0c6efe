from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from llmops_kernel.providers.local.cleanup import is_own
from llmops_kernel.providers.local.processes import MARK_ENV_VAR
from llmops_kernel.providers.local.provider import LocalProvider
from llmops_kernel.providers.local.record import cluster_folder
from tests.providers.conftest import Script, head_record

# As Ray's dashboard: a socket in a folder that only a process that ends in order removes.
LISTENER = """
    import socket, tempfile, time
    folder = tempfile.mkdtemp(prefix="pymp-", dir="/tmp")
    server = socket.socket(socket.AF_UNIX)
    server.bind(folder + "/listener")
    server.listen()
    print(folder, flush=True)
    time.sleep(600)
"""


def test_sockets_of_a_stopped_cluster_do_not_pile_up_in_tmp(
    tmp_path: Path, start_script: Script
) -> None:
    record = head_record(tmp_path / "ray")
    home = tmp_path / "home"
    cluster_folder(home, "lab").create()
    cluster_folder(home, "lab").write(record)
    ours = start_script(LISTENER, **{MARK_ENV_VAR: str(record.temp_dir)})
    other = start_script(LISTENER, **{MARK_ENV_VAR: str(tmp_path / "another")})
    assert ours.stdout is not None
    assert other.stdout is not None
    folder, others = (Path(process.stdout.readline().strip()) for process in (ours, other))
    try:
        LocalProvider(home).down("lab")
        assert ours.wait(30) != 0
        assert not folder.exists()
        assert other.poll() is None
        assert (others / "listener").is_socket()
    finally:
        shutil.rmtree(others)
        shutil.rmtree(folder, ignore_errors=True)


def test_nothing_is_touched_below_a_folder_of_somebody_else(tmp_path: Path) -> None:
    """As after a reboot, when another user was the first to make that folder in /tmp."""
    thesis, made = tmp_path / "thesis", tmp_path / "made"
    (thesis / "chapter").mkdir(parents=True)
    session = made / "lab-0123" / "session_latest"
    (session / "runtime_resources/py_modules_files/x/llmops_kernel").mkdir(parents=True)
    (made / "package").symlink_to(thesis)
    (tmp_path / "tmp").symlink_to(made)  # A link is nobody's folder, whoever has made it.
    record = head_record(tmp_path / "tmp" / "lab-0123")
    home = tmp_path / "home"
    cluster_folder(home, "lab").create()
    cluster_folder(home, "lab").write(record)
    LocalProvider(home).down("lab")
    assert [path.name for path in thesis.iterdir()] == ["chapter"]
    assert session.is_dir()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can make a folder of somebody else")
def test_a_folder_of_another_user_is_not_ones_own(tmp_path: Path) -> None:
    assert is_own(tmp_path)
    os.chown(tmp_path, 65534, 65534)
    assert not is_own(tmp_path)
    assert not is_own(tmp_path / "missing")
