from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from llmops_kernel.providers.local.processes import cluster_processes, head_process
from llmops_kernel.providers.local.provider import LocalProvider
from llmops_kernel.providers.local.record import HeadRecord, cluster_folder, cluster_names
from llmops_kernel.providers.protocol import ClusterInfo

Script = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def home() -> Iterator[Path]:
    """A home of its own; whatever a test leaves in it is stopped."""
    folder = Path(tempfile.mkdtemp(prefix="llmops-c-"))
    yield folder
    provider = LocalProvider(folder)
    for name in cluster_names(folder):
        provider.down(name)
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def start_script() -> Iterator[Script]:
    """Runs Python code in a process group of its own; ended with the test."""
    started: list[subprocess.Popen[str]] = []

    def start(code: str, **env: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(code)],
            env=os.environ | env,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def head_record(temp_dir: Path, **fields: Any) -> HeadRecord:
    """Return the record of a head of this host, as nobody has started it."""
    known = {
        "name": "lab",
        "host": socket.gethostname(),
        "dashboard_port": 34567,
        "started_s": time.time(),
        "ray_version": "2.60.0",
        "template": {},
    }
    return HeadRecord(temp_dir=temp_dir, **{**known, **fields})


def record_of(home: Path, name: str) -> HeadRecord:
    record = cluster_folder(home, name).read()
    assert record is not None
    return record


def part_of(record: HeadRecord, part: str) -> psutil.Process:
    """The head's process that runs that program or script."""
    head = head_process(record)
    assert head is not None
    for process in head.children(recursive=True):
        if any(part in Path(word).name for word in process.cmdline()[:4]):
            return process
    raise AssertionError(f"no {part} below {head}")


def all_listening(record: HeadRecord) -> list[tuple[str, int]]:
    """Address and port of every TCP socket that a process of this head listens on."""
    return [pair for process in cluster_processes(record) for pair in _listening(process)]


def _listening(process: psutil.Process) -> list[tuple[str, int]]:
    with suppress(psutil.Error):  # It has just ended.
        found = process.net_connections("tcp")
        return [(c.laddr.ip, c.laddr.port) for c in found if c.status == psutil.CONN_LISTEN]
    return []


def assert_no_trouble(info: ClusterInfo) -> None:
    """The first cluster of a machine reports one thing more than none."""
    compiles = info.message.startswith("DeepSpeed's CPU operations are being compiled")
    assert info.message == "" or compiles, info.message
