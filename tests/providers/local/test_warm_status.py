"""What `llmops status` says of a head's fork server."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from llmops_kernel.api.cluster_handle import describe
from llmops_kernel.cli.clusters.details import warm_word
from llmops_kernel.config.models.cluster import ClusterTemplate
from llmops_kernel.providers.local.launch import warm_folder
from llmops_kernel.providers.local.record import HeadRecord
from llmops_kernel.providers.local.status import warm_status
from llmops_kernel.providers.protocol import ClusterInfo, ClusterState
from llmops_kernel.warm.files import WarmFolder
from llmops_kernel.warm.for_jobs import start_report
from llmops_kernel.warm.launcher import FORKED_ENV_VAR, START_REPORT_ENV_VAR
from tests.providers.conftest import head_record


@pytest.fixture
def record() -> Iterator[HeadRecord]:
    """A head with an empty warm folder; its path short enough for a socket."""
    with tempfile.TemporaryDirectory(prefix="llmops-w-") as name:
        made = head_record(Path(name), template=ClusterTemplate().model_dump(mode="json"))
        warm_folder(made).create()
        yield made


@contextmanager
def kept(folder: WarmFolder, *modules: str) -> Iterator[None]:
    """A real keeper and its fork server, ready."""
    line = [sys.executable, "-m", "llmops_kernel.warm.keeper", str(folder.root)]
    with folder.log.open("ab") as log:
        keeper = subprocess.Popen(
            [*line, "--preload", *modules], stdout=log, stderr=log, cwd=folder.root
        )
    try:
        deadline_s = time.monotonic() + 60
        while (folder.read_state() or {}).get("state") != "ready":
            assert time.monotonic() < deadline_s, folder.log.read_text()
            time.sleep(0.05)
        yield
    finally:
        keeper.terminate()
        keeper.wait(20)


def test_warm_with_all_that_is_known(record: HeadRecord) -> None:
    folder = warm_folder(record)
    folder.note("cold", reason="the fork server did not answer within 2 s", kind="worker")
    folder.note("cold", reason="another interpreter", kind="driver")
    with kept(folder, "json", "sqlite3", "no_such_module"):
        found = warm_status(record)
    assert (found.warm, found.warm_modules, found.warm_forked) == ("warm", 2, 0)
    assert found.warm_missing == (
        "no_such_module (ModuleNotFoundError: No module named 'no_such_module')",
    )
    assert (found.warm_cold_starts, found.warm_cold_reason) == (2, "another interpreter")
    assert warm_status(record).warm.startswith("cold: the fork server is gone")


def test_a_template_without_it_says_so(record: HeadRecord) -> None:
    off = ClusterTemplate.model_validate({"warm": {"enabled": False}}).model_dump(mode="json")
    assert warm_status(head_record(record.temp_dir, template=off)).warm == "off (template)"
    assert warm_status(head_record(record.temp_dir)).warm.startswith("off (the head is older")


def test_each_way_of_not_being_warm(record: HeadRecord) -> None:
    folder = warm_folder(record)
    assert warm_status(record).warm == "cold: no fork server"
    folder.write_command(["python"], {})
    assert warm_status(record).warm == "starting"
    folder.write_state("starting", keeper_pid=os.getpid())
    assert warm_status(record).warm == "starting"
    folder.note("died", reason="killed by SIGKILL")
    assert warm_status(record).warm == "starting (the last one: killed by SIGKILL)"
    folder.write_state("ready", keeper_pid=os.getpid())
    assert warm_status(record).warm == "cold: the fork server has not answered for 0.5 s"
    folder.write_state("failed", keeper_pid=os.getpid(), reason="a module initialised CUDA")
    assert warm_status(record).warm.endswith("cannot start: a module initialised CUDA")
    folder.write_state("ready", keeper_pid=2**22 + 1)  # Above the kernel's highest pid.
    assert warm_status(record).warm.startswith("cold: the fork server is gone")
    assert warm_status(record).warm_forked is None


def test_a_hung_server_costs_half_a_second(record: HeadRecord) -> None:
    folder = warm_folder(record)
    folder.write_state("ready", keeper_pid=os.getpid())
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as hung:
        hung.bind(str(folder.socket))
        hung.listen()
        began = time.monotonic()
        assert warm_status(record).warm.startswith("cold:")
        assert time.monotonic() - began < 10.0


@pytest.mark.parametrize(
    ("warm", "word", "report_in_one_line"),
    [
        ("warm", "warm", "lab: ready, 1 node, warm"),
        ("cold: no fork server", "cold", "lab: ready, 1 node, cold: no fork server"),
        ("starting", "starting", "lab: ready, 1 node, fork server starting"),
        ("off (template)", "off", "lab: ready, 1 node, fork server off (template)"),
        ("", "–", "lab: ready, 1 node"),
    ],
)
def test_one_word_and_one_line(warm: str, word: str, report_in_one_line: str) -> None:
    info = ClusterInfo(
        name="lab", provider="local", state=ClusterState.READY, num_nodes=1, warm=warm
    )
    assert warm_word(info.warm) == word
    assert describe(info) == report_in_one_line


@pytest.mark.parametrize(
    ("value", "pid", "expected"),
    [
        pytest.param("warm", os.getpid(), (True, ""), id="warm"),
        # Inherited: this process was started by one that was forked.
        ("warm", 1, (False, "this process was not started through a fork server's launcher")),
        ("cold: the fork server was gone", 1, (False, "the fork server was gone")),
        (None, 1, (False, "this process was not started through a fork server's launcher")),
    ],
)
def test_a_process_knows_how_it_was_started(
    monkeypatch: pytest.MonkeyPatch, value: str | None, pid: int, expected: tuple[bool, str]
) -> None:
    monkeypatch.delenv(START_REPORT_ENV_VAR, raising=False)
    if value is not None:
        monkeypatch.setenv(START_REPORT_ENV_VAR, value)
        monkeypatch.setenv(FORKED_ENV_VAR, str(pid))
    assert start_report() == expected
