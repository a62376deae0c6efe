"""A host that tidies /tmp: the head is found by our own record, and its folder is locked."""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import subprocess
from pathlib import Path

import pytest

from llmops_kernel.config.models.cluster import ClusterTemplate
from llmops_kernel.providers.dashboard.rest import Dashboard
from llmops_kernel.providers.local.provider import LocalProvider
from llmops_kernel.providers.local.record import HeadRecord
from llmops_kernel.providers.protocol import ClusterState
from tests.providers.conftest import record_of
from tests.providers.local.test_local import eventually

TEMPLATE = ClusterTemplate(name="tidied", num_cpus=1)


def tidy(folder: Path) -> int:
    """Remove what systemd-tmpfiles removes when it is old: files and links, never live sockets."""
    gone = 0
    for path in folder.rglob("*"):
        if not stat.S_ISDIR(path.lstat().st_mode) and not stat.S_ISSOCK(path.lstat().st_mode):
            path.unlink()
            gone += 1
    return gone


def record(temp_dir: Path) -> HeadRecord:
    return HeadRecord(
        name="x",
        host="h",
        temp_dir=temp_dir,
        dashboard_port=1,
        started_s=1.0,
        ray_version="2.60.0",
        template={},
    )


def test_the_record_keeps_what_ray_wrote(tmp_path: Path) -> None:
    before = record(tmp_path)
    assert before.with_start() == before
    (tmp_path / "session_1").mkdir()
    (tmp_path / "session_latest").symlink_to("session_1")
    assert before.with_start() == before
    (tmp_path / "ray_current_cluster").write_text("127.0.0.1:6000\n")
    after = HeadRecord.model_validate_json(before.with_start().model_dump_json())
    for step in ("tidied by nobody", "tidied"):
        assert after.ray_address == "127.0.0.1:6000", step
        assert after.session_name == "session_1"
        assert after.ready_s == before.with_start().ready_s
        assert after.session.name in ("session_latest", "session_1")
        assert (after.session / "logs").parent.is_dir()
        tidy(tmp_path)


@pytest.mark.ray
def test_a_head_whose_temp_dir_was_tidied_is_found_and_runs_a_job(home: Path) -> None:
    provider = LocalProvider(home)
    first = provider.up(TEMPLATE)
    head = record_of(home, "tidied")
    # What systemd-tmpfiles does before it descends into a folder; it leaves a locked one alone.
    fd = os.open(head.temp_dir, os.O_RDONLY)
    try:
        with pytest.raises(BlockingIOError):
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    finally:
        os.close(fd)
    if cleaner := shutil.which("systemd-tmpfiles"):
        before = sorted(head.temp_dir.iterdir())
        rule = home / "rule.conf"
        rule.write_text(f"d {head.temp_dir} - - - 0\n")
        subprocess.run([cleaner, "--clean", str(rule)], check=True, timeout=60)
        assert sorted(head.temp_dir.iterdir()) == before
    # Other programs know no locks.
    assert tidy(head.temp_dir) > 10
    info = provider.get("tidied")
    assert info.state is ClusterState.READY
    assert info.num_nodes == 1
    assert info.ray_address == first.ray_address
    again = provider.up(TEMPLATE)
    assert (again.dashboard_url, again.created_s) == (first.dashboard_url, first.created_s)
    with Dashboard(provider.connect("tidied")) as dashboard:
        assert dashboard.session_name() == head.session_name
    provider.down("tidied")
    assert eventually(lambda: not head.temp_dir.exists())
