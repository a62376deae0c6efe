"""Start, death by kill -9, stop: with heads of their own, each used for several claims."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import httpx
import psutil
import pytest

from llmops_kernel.config.models.cluster import ClusterTemplate
from llmops_kernel.errors import ClusterDeadError, ClusterStartError, ClusterUnreachableError
from llmops_kernel.providers.local import launch
from llmops_kernel.providers.local.processes import cluster_processes, head_process, wait_gone
from llmops_kernel.providers.local.provider import LocalProvider
from llmops_kernel.providers.local.record import HeadRecord
from llmops_kernel.providers.protocol import ClusterInfo, ClusterState
from tests.providers.conftest import Script, all_listening, part_of, record_of
from tests.waiting import until

pytestmark = pytest.mark.ray

TEMPLATE = ClusterTemplate(name="life", num_cpus=1)
SECRET = "of-the-server-only"
SERVER_SECRETS = ("JUPYTERHUB_API_TOKEN", "JPY_API_TOKEN", "CONFIGPROXY_AUTH_TOKEN", "GITHUB_TOKEN")

UP = """
    import os, sys, time
    from llmops_kernel.providers.local.provider import LocalProvider
    from llmops_kernel.config.models.cluster import ClusterTemplate
    provider = LocalProvider()
    info = provider.up(ClusterTemplate(name="life", num_cpus=1), progress=print)
    assert os.environ["RAY_ADDRESS"] == "10.255.255.1:6379"
    print("UP", info.state, info.dashboard_url, info.created_s, flush=True)
    time.sleep(600)
"""


def wait_dead(provider: LocalProvider) -> ClusterInfo:
    until(lambda: provider.get("life").state is ClusterState.DEAD, timeout_s=30)
    return provider.get("life")


def is_gone(record: HeadRecord, ports: list[tuple[str, int]]) -> bool:
    """No process, no listening socket, no temp dir."""
    listens = {c.laddr.port for c in psutil.net_connections("tcp") if c.status == "LISTEN"}
    return (
        not cluster_processes(record)
        and not listens & {port for _, port in ports}
        and not record.temp_dir.exists()
    )


@pytest.fixture
def somebody_elses() -> Iterator[str]:
    """A plain `ray start --head` of another user of this machine; yields its dashboard URL."""
    dashboard, client = (launch.dashboard_port(ClusterTemplate()) for _ in range(2))
    folder = tempfile.mkdtemp(prefix="other-")
    # Without a token, so at least on loopback only (see clusters/launch.py).
    env = os.environ | {"RAY_AUTH_MODE": "disabled", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
    line = [sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block"]
    line += ["--node-ip-address=127.0.0.1", "--port=0", "--dashboard-agent-listen-port=0"]
    line += [f"--dashboard-port={dashboard}", f"--ray-client-server-port={client}"]
    line += [f"--temp-dir={folder}", "--num-cpus=1", "--disable-usage-stats"]
    line += ["--object-store-memory=80000000"]
    silence = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen(line, env=env, start_new_session=True, **silence)
    url = f"http://127.0.0.1:{dashboard}"
    try:
        # Ray writes this file last. Before that it may have chosen ports that it does not hold
        # yet, and another Ray that starts beside it may be quicker.
        done = Path(folder, "ray_current_cluster")
        until(lambda: done.exists() and session_of(url) is not None, timeout_s=120)
        yield url
    finally:
        tree = psutil.Process(process.pid).children(recursive=True)
        process.kill()  # Its children die with it, by Ray's own doing.
        process.wait(60)
        for child in tree:
            if child.is_running():
                child.kill()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def a_reader_of() -> Iterator[Callable[[Path], subprocess.Popen[bytes]]]:
    """Somebody who looks at a file of ours: `tail -f`, ended with the test."""
    readers: list[subprocess.Popen[bytes]] = []

    def read(path: Path) -> subprocess.Popen[bytes]:
        readers.append(subprocess.Popen(["tail", "-f", str(path)], stdout=subprocess.DEVNULL))
        return readers[-1]

    yield read
    for reader in readers:
        reader.kill()
        reader.wait()


def session_of(url: str) -> str | None:
    """Names the Ray that answers there."""
    try:
        name: str = httpx.get(f"{url}/api/version", timeout=30).json()["session_name"]
        return name
    except (httpx.HTTPError, ValueError, KeyError):
        return None


def sockets_of_multiprocessing(record: HeadRecord) -> set[Path]:
    """Folders that only a process removes that ends in order; Ray's dashboard has one."""
    found = set()
    for process in cluster_processes(record):
        with suppress(psutil.Error):
            paths = [Path(str(c.laddr)).parent for c in process.net_connections("unix")]
            found |= {path for path in paths if path.name.startswith("pymp-")}
    return found


def all_killed(record: HeadRecord) -> bool:
    left = cluster_processes(record)
    for process in left:
        with suppress(psutil.Error):
            process.kill()
    return not left


def test_two_start_one_and_it_outlives_both_then_dies_and_is_replaced(
    home: Path, start_script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("TMPDIR", "TEMP", "TMP"):
        monkeypatch.delenv(name, raising=False)
    env = {"LLMOPS_HOME": str(home), "RAY_ADDRESS": "10.255.255.1:6379"}
    starters = [start_script(UP, **env) for _ in range(2)]
    lines = [[line.strip() for line in iter_until_up(process)] for process in starters]
    ups = {said[-1] for said in lines}
    assert len(ups) == 1  # The same head, of the same moment.
    assert sum("Starting Ray" in line for said in lines for line in said) == 1
    for process in starters:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    provider = LocalProvider(home)
    info = provider.up(TEMPLATE)
    assert f"UP ready {info.dashboard_url} {info.created_s}" == ups.pop()
    record = record_of(home, "life")
    ports = all_listening(record)

    _kill_a_part(provider, record, info, ports)
    _kill_the_head(provider, home)


def _kill_a_part(
    provider: LocalProvider, record: HeadRecord, info: ClusterInfo, ports: list[tuple[str, int]]
) -> None:
    part_of(record, "gcs_server").kill()
    dead = wait_dead(provider)
    assert "gcs_server" in dead.message
    assert "llmops resume life" in dead.remedy
    assert "--- gcs_server.out" in dead.log_tail
    assert dead.num_cpus is None
    assert dead.dashboard_url is None
    with pytest.raises(ClusterDeadError, match="gcs_server"):
        provider.connect("life")

    reported: list[str] = []
    new = provider.up(TEMPLATE, progress=reported.append)
    assert "gcs_server" in reported[0]
    assert new.state is ClusterState.READY
    assert new.created_s != info.created_s
    assert is_gone(record, ports)


def _kill_the_head(provider: LocalProvider, home: Path) -> None:
    record = record_of(home, "life")
    ports = all_listening(record)
    head = head_process(record)
    assert head is not None
    sockets = sockets_of_multiprocessing(record)
    assert sockets
    head.kill()
    dead = wait_dead(provider)
    assert str(head.pid) in dead.message
    assert dead.log_tail
    # Nobody is left to be asked for them.
    until(lambda: all_killed(record), timeout_s=30)
    provider.down("life")
    assert provider.get("life").state is ClusterState.STOPPED
    assert is_gone(record, ports)
    assert not [path for path in sockets if path.exists()]
    assert (home / "clusters/life/logs/gcs_server.out").exists()


def iter_until_up(process: subprocess.Popen[str]) -> Iterator[str]:
    assert process.stdout is not None
    for line in process.stdout:
        yield line
        if line.startswith("UP"):
            return
    raise AssertionError("the starter ended before its cluster was up")


def test_down_with_a_running_job_leaves_nothing_and_nobody_else_is_touched(
    home: Path,
    somebody_elses: str,
    a_reader_of: Callable[[Path], subprocess.Popen[bytes]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in SERVER_SECRETS:
        monkeypatch.setenv(name, SECRET)
    monkeypatch.setenv("HF_TOKEN", "hf_of-the-user")
    provider = LocalProvider(home)
    assert provider.up(TEMPLATE).state is ClusterState.READY
    record = record_of(home, "life")
    ports = all_listening(record)
    reader = a_reader_of(record.session / "logs/raylet.out")
    sleeper = run_job_with_a_daemon(provider)
    assert provider.get("life").jobs_running == 1
    _no_secret_of_the_server_arrived(record, sleeper)

    others = session_of(somebody_elses)
    assert others is not None, "the other Ray has ended by itself"

    began = time.monotonic()
    provider.down("life")
    print(f"down in {time.monotonic() - began:.1f} s")
    assert wait_gone([sleeper], timeout_s=0)  # A zombie that init has not reaped is gone.
    assert is_gone(record, ports)
    provider.down("life")
    assert provider.get("life").state is ClusterState.STOPPED
    assert session_of(somebody_elses) == others
    assert reader.poll() is None


def _no_secret_of_the_server_arrived(record: HeadRecord, of_a_job: psutil.Process) -> None:
    assert of_a_job.environ()["HF_TOKEN"] == "hf_of-the-user"
    for process in cluster_processes(record):
        with suppress(psutil.NoSuchProcess):
            assert SECRET not in Path(f"/proc/{process.pid}/environ").read_text(errors="replace")
    kept = launch.warm_folder(record).command.read_bytes()
    assert b"hf_of-the-user" in kept
    assert SECRET.encode() not in kept


def run_job_with_a_daemon(provider: LocalProvider) -> psutil.Process:
    """A job that has left a process in a session of its own; returns that process."""
    connection = provider.connect("life")
    mark = f"{time.time_ns() % 10**6 + 10**6}"
    code = f"import subprocess, time; subprocess.Popen(['sleep', '{mark}'], start_new_session=True)"
    with httpx.Client(base_url=connection.dashboard_url, headers=connection.headers()) as http:
        body = {"entrypoint": f'python -c "{code}; time.sleep(600)"', "submission_id": "daemon"}
        assert http.post("/api/jobs/", json=body, timeout=60).status_code == 200
    found: list[psutil.Process] = []

    def is_there() -> bool:
        found[:] = [p for p in psutil.process_iter() if is_sleep(p, mark)]
        return bool(found)

    until(is_there, timeout_s=120)
    return found[0]


def is_sleep(process: psutil.Process, mark: str) -> bool:
    try:
        return process.cmdline() == ["sleep", mark]
    except psutil.Error:
        return False


def test_control_c_during_the_start_leaves_nothing(home: Path, start_script: Script) -> None:
    process = start_script(UP, LLMOPS_HOME=str(home), RAY_ADDRESS="10.255.255.1:6379")
    assert process.stdout is not None
    assert "Starting Ray" in process.stdout.readline()
    until(lambda: record_of(home, "life").pid is not None, timeout_s=30)
    record = record_of(home, "life")
    os.kill(process.pid, signal.SIGINT)
    assert process.wait(60) != 0
    assert is_gone(record, [])
    assert LocalProvider(home).get("life").state is ClusterState.STOPPED


def test_a_start_that_takes_too_long_is_undone_and_reported_with_its_log(home: Path) -> None:
    with pytest.raises(ClusterStartError, match=r"not ready within \d+ s \(") as caught:
        LocalProvider(home, start_timeout_s=1.0).up(TEMPLATE)
    assert "doctor" in caught.value.remedy
    assert is_gone(record_of(home, "life"), [])


def test_a_head_that_cannot_start_says_why(home: Path) -> None:
    broken = home / "broken"
    broken.mkdir(parents=True)
    (broken / "ray.py").write_text("raise RuntimeError('no luck today')")
    template = ClusterTemplate(name="life", env={"PYTHONPATH": str(broken)})
    with pytest.raises(ClusterStartError, match="ended with exit code 1 while") as caught:
        LocalProvider(home).up(template)
    assert "Its last error: RuntimeError: no luck today" in caught.value.message
    assert "\n" not in caught.value.message
    assert "--- head.log" in (home / "clusters/life/failed-start.log").read_text()
    assert str(home / "clusters/life/failed-start.log") in caught.value.remedy
    assert is_gone(record_of(home, "life"), [])


def test_a_head_that_crashes_without_a_word_is_reported_with_its_signal(home: Path) -> None:
    """Ray 2.60 dies silently of a setting that is no number."""
    template = ClusterTemplate(name="life", env={"RAY_num_workers_soft_limit": "many"})
    with pytest.raises(ClusterStartError, match=r"ended by SIG[A-Z]+ while it was starting"):
        LocalProvider(home).up(template)


def test_a_head_that_takes_no_submissions_is_not_ready_and_up_starts_it_again(home: Path) -> None:
    """It was READY for as long as its node list answered, and `up` did nothing."""
    provider = LocalProvider(home, answer_timeout_s=1.0)
    first = provider.up(TEMPLATE)
    record = record_of(home, "life")
    agents = [p for p in cluster_processes(record) if _is_agent(p)]
    assert agents
    for agent in agents:
        agent.suspend()
    info = provider.get("life")
    assert info.state is ClusterState.STARTING
    assert "the agent that starts drivers does not answer" in info.message
    reported: list[str] = []
    again = provider.up(TEMPLATE, progress=reported.append)
    assert any("no job is in it: starting it again" in line for line in reported)
    assert again.state is ClusterState.READY
    assert again.created_s != first.created_s
    assert is_gone(record, [])


def test_a_head_with_a_job_in_it_is_not_started_again(home: Path) -> None:
    provider = LocalProvider(home, answer_timeout_s=1.0)
    provider.up(TEMPLATE)
    run_job_with_a_daemon(provider)
    record = record_of(home, "life")
    for agent in [p for p in cluster_processes(record) if _is_agent(p)]:
        agent.suspend()
    with pytest.raises(ClusterUnreachableError, match="jobs are running in it") as caught:
        provider.up(TEMPLATE)
    assert "llmops suspend life" in caught.value.remedy


def _is_agent(process: psutil.Process) -> bool:
    with suppress(psutil.Error):
        line = " ".join(process.cmdline())
        return "dashboard/agent.py" in line or "DashboardAgent" in line
    return False
