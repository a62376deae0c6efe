"""A host that tidies /tmp: the head is found by our own record, and its folder is locked."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import stat
import subprocess
from pathlib import Path

import pytest

from llmops_kernel.config.models.cluster import ClusterTemplate
from llmops_kernel.providers.dashboard import Dashboard
from llmops_kernel.providers.local import launch
from llmops_kernel.providers.local.provider import LocalProvider
from llmops_kernel.providers.local.record import ClusterFolder, HeadRecord
from llmops_kernel.providers.protocol import ClusterState
from tests.providers.conftest import assert_no_trouble, head_record, record_of
from tests.waiting import until

TEMPLATE = ClusterTemplate(name="tidied", num_cpus=1)


def tidy(folder: Path) -> int:
    """Remove what systemd-tmpfiles removes when it is old: files and links, never live sockets."""
    gone = 0
    for path in folder.rglob("*"):
        if not stat.S_ISDIR(path.lstat().st_mode) and not stat.S_ISSOCK(path.lstat().st_mode):
            path.unlink()
            gone += 1
    return gone


def test_the_record_keeps_what_ray_wrote(tmp_path: Path) -> None:
    before = head_record(tmp_path)
    assert before.with_start() == before
    (tmp_path / "session_1").mkdir()
    (tmp_path / "session_latest").symlink_to("session_1")
    assert before.with_start() == before
    (tmp_path / "ray_current_cluster").write_text("127.0.0.1:6000\n")
    ready_s = before.ready_s
    assert ready_s is not None
    after = HeadRecord.model_validate_json(before.with_start().model_dump_json())
    for step in ("tidied by nobody", "tidied"):
        assert after.ray_address == "127.0.0.1:6000", step
        assert after.session_name == "session_1"
        assert after.ready_s == ready_s
        assert after.session.name in ("session_latest", "session_1")
        assert (after.session / "logs").parent.is_dir()
        tidy(tmp_path)


def test_the_folder_is_locked_against_systemd_tmpfiles_while_the_head_lives(
    tmp_path: Path,
) -> None:
    temp_dir = tmp_path / "all" / "head"
    temp_dir.mkdir(parents=True)
    (temp_dir / "ray_current_cluster").write_text("127.0.0.1:6000")
    folder = ClusterFolder(tmp_path / "record")
    folder.create()
    head = launch.spawn(["sleep", "600"], os.environ, record=head_record(temp_dir), folder=folder)
    assert head.pid is not None
    try:
        assert is_locked(temp_dir)
        clean(temp_dir.parent)
        assert (temp_dir / "ray_current_cluster").exists()
    finally:
        os.kill(head.pid, signal.SIGKILL)
    until(lambda: not is_locked(temp_dir))
    if clean(temp_dir.parent):
        assert not (temp_dir / "ray_current_cluster").exists()


def is_locked(folder: Path) -> bool:
    """Return what systemd-tmpfiles asks before it descends into a folder."""
    fd = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def clean(folder: Path) -> bool:
    """Remove all that is older than now, as a host may do with /tmp; False: it has no systemd."""
    program = shutil.which("systemd-tmpfiles")
    if program is None:
        return False
    rule = folder.with_name("rule.conf")
    rule.write_text(f"d {folder} - - - 0\n")
    subprocess.run([program, "--clean", str(rule)], check=True, timeout=60)
    return True


@pytest.mark.ray
def test_a_head_whose_temp_dir_was_tidied_is_found(home: Path) -> None:
    provider = LocalProvider(home)
    first = provider.up(TEMPLATE)
    head = record_of(home, "tidied")
    assert_no_trouble(first)
    assert tidy(head.temp_dir) > 10
    info = provider.get("tidied")
    assert info.state is ClusterState.READY
    assert info.num_nodes == 1
    assert f"files of this cluster in {head.temp_dir} were removed" in info.message
    assert "llmops resume tidied" in info.remedy
    assert info.ray_address == first.ray_address
    again = provider.up(TEMPLATE)
    assert (again.dashboard_url, again.created_s) == (first.dashboard_url, first.created_s)
    with Dashboard(provider.connect("tidied")) as dashboard:
        assert dashboard.session_name() == head.session_name
    provider.down("tidied")
    until(lambda: not head.temp_dir.exists())
