"""The trackers' own libraries, in an environment that `make trackers` makes, and a real server."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from llmops_kernel.store.record import RunSpec
from llmops_kernel.trackers.process import Job
from tests.checks.tracked import ROOT

FOLDER = Path(os.environ.get("LLMOPS_TEST_TRACKERS") or ROOT / ".venv" / "trackers")
"""What `make trackers` makes."""
_START_S = 180.0
RUN = "tags-1"


def python() -> str:
    """Return the interpreter; skips the test where it was not made."""
    path = FOLDER / "bin" / "python"
    if not path.exists():
        pytest.skip(f"{path} is missing: `make trackers` makes it")
    return str(path)


def environment(folder: Path, **variables: str) -> dict[str, str]:
    """Return variables for a process that reports from `folder`, and to nobody else."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    own = {
        "PYTHONPATH": str(ROOT),
        "WANDB_MODE": "offline",
        "COMET_START_ONLINE": "0",
        "TRACKIO_DIR": str(folder / "trackio"),
        "MLFLOW_TRACKING_URI": f"sqlite:///{folder / 'mlflow.db'}",
        "GIT_PYTHON_REFRESH": "quiet",
        "DO_NOT_TRACK": "1",
    }
    return kept | own | variables


def start(
    folder: Path,
    trackers: Sequence[str],
    *,
    driver: int,
    config: dict[str, Any] | None = None,
    attempt: int = 1,
    **variables: str,
) -> subprocess.Popen[bytes]:
    """Start the process that sends the journal in `folder`, as a driver does."""
    spec = RunSpec(
        run_id=RUN,
        attempt=attempt,
        config={"name": "tags", "optimizer": {"learning_rate": 0.1}, **(config or {})},
        run_root=str(folder),
        submitted_s=time.time(),
        facts={"user": "ann", "code_hash": "f00", "dashboard": "http://127.0.0.1:8265"},
    )
    job = Job(
        spec=spec.encode(),
        trackers=tuple(trackers),
        journal=str(folder / "journal"),
        writes_to=(str(folder / "journal"),),
        folder=str(folder / "trackers"),
        home=str(folder),
        run_folder=str(folder),
        sees_all=True,
        driver=driver,
    )
    process = subprocess.Popen(
        [python(), "-m", "llmops_kernel.trackers.process"],
        env=environment(folder, **variables),
        stdin=subprocess.PIPE,
        cwd=folder,
    )
    assert process.stdin is not None
    with process.stdin as pipe:
        pipe.write(job.model_dump_json().encode())
    return process


def read_back(name: str, folder: Path, **variables: str) -> dict[str, Any]:
    """Return what the tracker's own reader finds of the run (`read_back.py`)."""
    script = Path(__file__).with_name("read_back.py")
    done = subprocess.run(
        [python(), str(script), name, str(folder)],
        env=environment(folder, **variables),
        capture_output=True,
        text=True,
        timeout=_START_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@contextmanager
def mlflow_server(folder: Path, port: int) -> Iterator[subprocess.Popen[bytes]]:
    """Run MLflow's server with SQLite; it may be killed and started again on the same port."""
    command = [python(), "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port)]
    command += ["--backend-store-uri", f"sqlite:///{folder / 'server.db'}", "--workers", "1"]
    command += ["--artifacts-destination", str(folder / "artifacts")]
    with (folder / "server.log").open("ab") as log:
        process = subprocess.Popen(
            command,
            # Else it loads eight processes for jobs, still when it has answered; none is used here.
            env=environment(
                folder, MLFLOW_TRACKING_URI="", MLFLOW_SERVER_ENABLE_JOB_EXECUTION="false"
            ),
            stdout=log,
            stderr=log,
            cwd=folder,
            start_new_session=True,
        )
    try:
        _wait(f"http://127.0.0.1:{port}/health", process, folder / "server.log")
        yield process
    finally:
        kill(process)


def kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a session with signal 9."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _wait(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    until_s = time.monotonic() + _START_S
    while time.monotonic() < until_s:
        assert process.poll() is None, log.read_text()[-3000:]
        with suppress(OSError), urllib.request.urlopen(url, timeout=5) as answer:
            if answer.status == 200:
                return
        time.sleep(0.2)
    pytest.fail(f"no answer of {url}: {log.read_text()[-3000:]}")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
