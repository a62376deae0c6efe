"""Start of a local head: its command line, its environment, its folders and ports."""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path

import psutil

from llmops_kernel.config.models.cluster import ClusterTemplate
from llmops_kernel.config.models.section import NodePrice
from llmops_kernel.errors import ClusterStartError, MissingDependencyError
from llmops_kernel.hardware import loopback
from llmops_kernel.providers import certificates
from llmops_kernel.providers.local.inherited import inherited
from llmops_kernel.providers.local.processes import MARK_ENV_VAR
from llmops_kernel.providers.local.record import ClusterFolder, HeadRecord
from llmops_kernel.store import paths
from llmops_kernel.store.compiled_ops import own_ops_folder
from llmops_kernel.store.files import is_own_folder
from llmops_kernel.warm.files import WarmFolder
from llmops_kernel.warm.for_jobs import keep_environment
from llmops_kernel.warm.launcher import DIR_ENV_VAR, REGISTER_ENV_VAR
from llmops_kernel.warm.start_hook import PRELOAD_ENV_VAR

# Training data and weights go through files and process groups, not through Ray's object
# store; Ray's own default of 30 % of the memory would only be missed elsewhere.
_MAX_STORE_BYTES = 512 * 1024**2
_MIN_STORE_BYTES = 75 * 1024**2  # Ray refuses less.
_NEEDED_DISK_BYTES = 500 * 1024**2
# Below the ports that the kernel gives to connections.
_AGENT_PORTS = range(20_000, 32_000)

_RAY_LIMITS = {
    # Names and defaults as in Ray 2.60. They end what hangs, and on a busy machine what is slow:
    # a part of a head that needs longer ends the whole head, a worker that needs longer is killed
    # and started again, for ever.
    REGISTER_ENV_VAR: "240",  # 60
    "RAY_agent_register_timeout_ms": "600000",  # 30000
    "RAY_raylet_start_wait_time_s": "300",  # 10
    "RAY_gcs_server_port_wait_time_s": "300",  # 30
    "RAY_gcs_rpc_server_connect_timeout_s": "60",  # 5
    "RAY_py_gcs_connect_timeout_s": "180",  # 30
    "RAY_gcs_server_request_timeout_seconds": "180",  # 60
    "RAY_health_check_timeout_ms": "60000",  # 10000
    "RAY_DASHBOARD_STARTUP_TIMEOUT_S": "600",  # 60
    "RAY_DASHBOARD_SUBPROCESS_MODULE_WAIT_READY_TIMEOUT": "600",  # 30
}

_SPINS = "4000"
"""Spins of a waiting thread at the end of a parallel region (GNU OpenMP) before it sleeps: about
0.05 to 0.2 ms. Its default of 300,000 is several milliseconds, in which it takes the core
that the others wait for where something else computes as well."""

HEAD_MODULE = "llmops_kernel.providers.local.start_hook"

# Popen objects of the heads started here, so that none is collected (with a warning) while its
# head lives, and none stays a zombie after it died.
_started: list[subprocess.Popen[bytes]] = []


def check_installed() -> None:
    """Check that Ray is installed, without importing it. Raises MissingDependencyError."""
    # aiohttp_cors comes only with ray[default], which has the dashboard and so the Jobs API.
    missing = [name for name in ("ray", "aiohttp_cors") if find_spec(name) is None]
    if missing:
        subject = "Ray is" if "ray" in missing else "Ray's dashboard (ray[default]) is"
        raise MissingDependencyError(
            f"{subject} not installed in {sys.prefix}, so no cluster can be started here",
            remedy='pip install "llmops-kernel[train]"',
        )


def new_temp_dir(name: str) -> Path:
    """Create a new private folder with a short name.

    The paths of Ray's unix sockets are 67 characters longer and may have 107 in all.
    """
    parent = Path("/tmp") / f"llmops-{os.getuid()}"
    try:
        parent.mkdir(mode=0o700, exist_ok=True)
        if not is_own_folder(parent):
            raise ClusterStartError(
                f"{parent} belongs to another user or is not a folder, so the cluster's sockets"
                f" cannot be created in it",
                remedy=f"remove {parent}, or ask its owner to",
            )
        parent.chmod(0o700)
        folder = parent / f"{name[:10]}-{secrets.token_hex(2)}"
        folder.mkdir(mode=0o700)
    except OSError as error:
        raise ClusterStartError(
            f"Cannot create a temp dir in {parent}: {error.strerror}",
            remedy="free some space in /tmp or fix its permissions",
        ) from error
    _check_disk(folder)
    return folder


def _check_disk(folder: Path) -> None:
    free = shutil.disk_usage(folder).free
    if free < _NEEDED_DISK_BYTES:
        folder.rmdir()
        raise ClusterStartError(
            f"{folder.parent} has {free / 1e6:.0f} MB free; a head needs"
            f" {_NEEDED_DISK_BYTES / 1e6:.0f} MB for logs and packages",
            remedy="free some space in /tmp",
        )


def dashboard_port(template: ClusterTemplate) -> int:
    """Return the template's port if it is free, else a free one from the kernel."""
    requested = template.dashboard_port or 0
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", requested))
        except OSError as error:
            raise ClusterStartError(
                f"Port {requested} for the dashboard is not available: {error.strerror}"
                f"{_listener(requested)}",
                remedy="remove dashboard_port from the template: then a free port is chosen",
            ) from error
        port: int = probe.getsockname()[1]
        return port


def _listener(port: int) -> str:
    for process in psutil.process_iter(["name"]):
        try:
            listens = any(
                c.status == psutil.CONN_LISTEN and c.laddr.port == port
                for c in process.net_connections("tcp")
            )
        except psutil.Error:
            continue
        if listens:
            return f" ({process.info['name']}, pid {process.pid}, listens there)"
    return ""


def object_store_bytes(template: ClusterTemplate) -> int:
    if template.object_store_memory_bytes is not None:
        return template.object_store_memory_bytes
    return max(_MIN_STORE_BYTES, min(_MAX_STORE_BYTES, psutil.virtual_memory().total // 8))


def small_shm(template: ClusterTemplate) -> str:
    """Return a warning if /dev/shm cannot hold the object store, as in many containers."""
    try:
        free = shutil.disk_usage("/dev/shm").free
    except OSError:
        return ""
    needed = object_store_bytes(template)
    if free >= needed:
        return ""
    return (
        f"/dev/shm has {free / 1e6:.0f} MB free, the object store needs {needed / 1e6:.0f} MB: it"
        f" is placed in the temp dir."
        " Training is not affected; to avoid it, start the container with --shm-size=1g"
    )


def agent_ports() -> tuple[int, int, int, int]:
    """Return four free ports for Ray's agents.

    With ports of its own choice an agent must tell the raylet within 15 s which they are, or the
    raylet ends; on a busy machine it needs longer to start.
    """
    ports: list[int] = []
    while len(ports) < 4:
        port = _AGENT_PORTS.start + secrets.randbelow(len(_AGENT_PORTS))
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            ports += [] if port in ports else [port]
    return ports[0], ports[1], ports[2], ports[3]


def command(
    record: HeadRecord, template: ClusterTemplate, *, ports: tuple[int, int, int, int] | None = None
) -> list[str]:
    """Return the command line. `ports` are of Ray's agents; None: they choose them themselves."""
    line = [
        *(sys.executable, "-m", HEAD_MODULE, "start", "--head", "--block"),
        "--node-ip-address=127.0.0.1",
        # 0 lets each server bind a port that is free: no race, no clash with another Ray.
        *("--port=0", f"--dashboard-agent-listen-port={ports[0] if ports else 0}"),
        *("--min-worker-port=0", "--max-worker-port=0"),
        *("--dashboard-host=127.0.0.1", f"--dashboard-port={record.dashboard_port}"),
        "--include-dashboard=true",  # The Jobs API lives in it.
        f"--temp-dir={record.temp_dir}",
        f"--object-store-memory={object_store_bytes(template)}",
        *("--disable-usage-stats", "--log-color=false", "--log-style=record"),
    ]
    if ports is not None:
        names = ("dashboard-agent-grpc-port", "runtime-env-agent-port", "metrics-export-port")
        line += [f"--{name}={port}" for name, port in zip(names, ports[1:], strict=True)]
    if template.num_cpus is not None:
        line.append(f"--num-cpus={template.num_cpus}")
    if template.num_gpus is not None:
        line.append(f"--num-gpus={template.num_gpus}")
    if small_shm(template):
        # Said outright, Ray does not warn about its own choice of the same.
        line.append(f"--plasma-directory={record.temp_dir}")
    return line


def environment(
    user: Mapping[str, str],
    *,
    record: HeadRecord,
    folder: ClusterFolder,
    template: ClusterTemplate,
    home: Path,
) -> dict[str, str]:
    """Return the environment of the head and so of every job; the user's own is not changed."""
    env = inherited(user, template.inherit_env)
    env.setdefault("TORCH_EXTENSIONS_DIR", str(own_ops_folder(paths.cache())))
    # torch's default is /tmp/torchinductor_<user>: whoever makes that folder first chooses the
    # code that it loads from there.
    env.setdefault("TORCHINDUCTOR_CACHE_DIR", str(paths.cache() / "torch_inductor"))
    # All of a run is on this machine, whatever network card the user's shell names for others.
    env |= loopback.settings() | {"VLLM_HOST_IP": loopback.ADDRESS}
    env = _RAY_LIMITS | env
    env |= template.metrics.environment() | template.env
    if "OMP_WAIT_POLICY" not in env:
        env.setdefault("GOMP_SPINCOUNT", _SPINS)
    # Sockets of Ray's dashboard and temporary files of runs go with the cluster, also those of
    # killed processes. A folder of the user's own stays: data may have been put there for a run.
    if not env.keys() & {"TMPDIR", "TEMP", "TMP"}:
        # A script may start a Ray of its own, whose sockets have long paths.
        env |= {"TMPDIR": str(temporary(record)), "RAY_TMPDIR": "/tmp"}
    env |= {
        MARK_ENV_VAR: str(record.temp_dir),
        # `python` in an entrypoint is the interpreter that started the head.
        "PATH": os.pathsep.join([*_binaries(record, template), env.get("PATH") or os.defpath]),
        "PYTHONPATH": os.pathsep.join(filter(None, [_lazy_imports(), env.get("PYTHONPATH")])),
        paths.HOME_ENV_VAR: str(home),
        paths.CACHE_ENV_VAR: str(paths.cache()),
    }
    env |= NodePrice.of(template.price, only_node=True).environment()
    tls = certificates.settings(folder.root) if template.tls else {}
    return env | _warm_settings(record, template) | _ray_settings(folder, template) | tls


def new_secrets(folder: ClusterFolder, template: ClusterTemplate) -> None:
    """Write what a new head and its clients know each other by: a token, with TLS a certificate.

    Raises ClusterStartError, MissingDependencyError.
    """
    folder.new_token()
    if template.tls:
        certificates.make(folder.root)


def temporary(record: HeadRecord) -> Path:
    """Return the folder for temporary files: multiprocessing's sockets add 33 characters to it."""
    return record.temp_dir / "tmp"


def warm_folder(record: HeadRecord) -> WarmFolder:
    return WarmFolder(record.temp_dir / "warm")


def _binaries(record: HeadRecord, template: ClusterTemplate) -> list[str]:
    folders = [str(Path(sys.executable).parent)]
    return [str(warm_folder(record).bin), *folders] if template.warm.enabled else folders


def _warm_settings(record: HeadRecord, template: ClusterTemplate) -> dict[str, str]:
    if not template.warm.enabled:
        return {}
    return {
        DIR_ENV_VAR: str(warm_folder(record).root),
        PRELOAD_ENV_VAR: " ".join(template.warm.preload),
    } | keep_environment(template.warm)


def _ray_settings(folder: ClusterFolder, template: ClusterTemplate) -> dict[str, str]:
    return {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": str(folder.token),
        "RAY_START_HOOK": f"{HEAD_MODULE}.configure",
        # Without it Ray on Linux replaces 127.0.0.1 by the address of a network card and
        # listens on all of them.
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
        # The default ports are fixed, so a second Ray on the host would log errors.
        "DASHBOARD_METRIC_PORT": "0",
        "AUTOSCALER_METRIC_PORT": "0",
        # A stopped run needs time for its checkpoint; Ray's default is 3 s. Whole seconds only.
        "RAY_JOB_STOP_WAIT_TIME_S": str(max(1, round(template.stop_wait_s))),
        "RAY_STREAM_RUNTIME_ENV_LOG_TO_JOB_DRIVER_LOG": "1",
        # No other node could take over, so draining before the end would only take time.
        "RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S": "0",
    }


def _lazy_imports() -> str | None:
    """Return the folder that makes `import ray` three times as fast; see the module in it."""
    stands_for = "rfc3987_syntax"
    return str(Path(__file__).parent / "lazy_imports") if find_spec(stands_for) else None


def spawn(
    line: list[str], env: Mapping[str, str], *, record: HeadRecord, folder: ClusterFolder
) -> HeadRecord:
    """Start the head in a session of its own: it outlives this process and its terminal."""
    reap()
    try:
        temporary(record).mkdir(mode=0o700, exist_ok=True)
        with folder.head_log.open("wb") as output, _kept_from_tidying(record.temp_dir) as lock:
            process = subprocess.Popen(
                line,
                env=dict(env),
                # The current folder is on sys.path of `python -m`: a user's socks.py there
                # would be imported in place of the library's.
                cwd=record.temp_dir,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                pass_fds=(lock,),
            )
    except OSError as error:
        raise ClusterStartError(
            f"Cannot run {line[0]}: {error.strerror}", remedy="run llmops doctor"
        ) from error
    _started.append(process)
    with suppress(psutil.Error):  # It may be gone already; then there is no time to note.
        created_s = psutil.Process(process.pid).create_time()
        record = record.model_copy(update={"pid": process.pid, "pid_created_s": created_s})
    folder.write(record)
    folder.link_targets(record)
    return record


@contextmanager
def _kept_from_tidying(temp_dir: Path) -> Iterator[int]:
    """Lock the folder for as long as the head lives, which inherits the lock.

    systemd-tmpfiles leaves a locked folder and all below it alone (tmpfiles.d(5), "Age").
    """
    fd = os.open(temp_dir, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with suppress(OSError):  # A file system without locks.
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield fd
    finally:
        os.close(fd)


def how_it_ended(pid: int) -> str:
    """Return how a head of this process ended: "with exit code 1", "by SIGSEGV"; else empty.

    Some ends leave no message in any log.
    """
    for process in _started:
        if process.pid == pid and (code := process.poll()) is not None:
            return f"with exit code {code}" if code >= 0 else f"by {signal.Signals(-code).name}"
    return ""


def reap() -> None:
    """Take the exit status of heads started here that have ended."""
    _started[:] = [process for process in _started if process.poll() is None]
