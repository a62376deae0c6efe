"""The record of a local head on disk, so that any process finds it again."""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import shutil
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TextIO

from pydantic import BaseModel, ConfigDict, ValidationError

from llmops_kernel.config.models.cluster import ClusterTemplate
from llmops_kernel.config.reading.check import resolved
from llmops_kernel.config.reading.document import document_of
from llmops_kernel.config.reading.templates import load_cluster_template
from llmops_kernel.errors import ClusterStartError, ConfigError
from llmops_kernel.store.files import private_folder

_RAY_TARGETS = "prom_metrics_service_discovery.json"
"""Ray's name for the file, below its temp dir."""
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?")


class Start(BaseModel):
    """Files that Ray writes into its temp dir at the end of a start.

    Kept in our record as well: a host that tidies /tmp (systemd-tmpfiles) removes files of a
    head that works, when they are some days old.
    """

    model_config = ConfigDict(extra="ignore", frozen=True)

    ray_address: str
    session_name: str
    ready_s: float


class HeadRecord(BaseModel):
    """The record of one head.

    It is written before the process starts, with the process, and at the stop.
    """

    model_config = ConfigDict(extra="ignore", frozen=True)

    name: str
    host: str
    temp_dir: Path
    dashboard_port: int
    started_s: float
    pid: int | None = None
    pid_created_s: float | None = None
    """Identifies one process, together with `pid`: pids are reused, times are not."""
    stopping_s: float | None = None
    """When stopping began."""
    stopped_s: float | None = None
    ray_version: str
    template: dict[str, Any]
    """The template without `env`, which may hold a secret."""
    template_path: Path | None = None
    """The file that it was read from; `env` can be read there again."""
    env_names: tuple[str, ...] | None = None
    """Names of the variables that the template sets; None in a record of an older version."""
    note: str = ""
    """Notice to users about this head for as long as it runs."""
    known: Start | None = None
    """Facts of the start; None in a record of an older version, and before."""

    @property
    def dashboard_url(self) -> str:
        return f"http://127.0.0.1:{self.dashboard_port}"

    @property
    def session(self) -> Path:
        link = self.temp_dir / "session_latest"
        if self.known is None or link.is_symlink():
            return link
        return self.temp_dir / self.known.session_name

    @property
    def kept_package(self) -> Path:
        """Return where the unpacked package waits for this user's next cluster on this host."""
        return self.temp_dir.parent / "package"

    @property
    def ray_address(self) -> str | None:
        """Return Ray's address; None until the start is over."""
        return self.known.ray_address if self.known else _read_text(self._address)

    @property
    def ready_s(self) -> float | None:
        """Return when its start was complete."""
        if self.known is not None:
            return self.known.ready_s
        with suppress(OSError):
            return self._address.stat().st_mtime
        return None

    @property
    def session_name(self) -> str | None:
        if self.known is not None:
            return self.known.session_name
        with suppress(OSError):
            return os.path.basename(os.readlink(self.temp_dir / "session_latest"))
        return None

    @property
    def _address(self) -> Path:
        """Return the file that `ray start` writes last: with it the start is over."""
        return self.temp_dir / "ray_current_cluster"

    @property
    def is_tidied(self) -> bool:
        """Return whether Ray's file of a finished start is gone: others will be, too."""
        return self.known is not None and not self._address.exists()

    def with_start(self) -> HeadRecord:
        """Return the record with what Ray has written by now, if that is all of it."""
        address, session, ready_s = self.ray_address, self.session_name, self.ready_s
        if not (address and session and ready_s):
            return self
        start = Start(ray_address=address, session_name=session, ready_s=ready_s)
        return self.model_copy(update={"known": start})

    @property
    def is_elsewhere(self) -> bool:
        """Return whether the head is on another host that shares the home folder.

        This process cannot see such a head.
        """
        return self.host != socket.gethostname()


def targets_folder(home: Path) -> Path:
    """Return the folder with a file of metrics endpoints for each local cluster that runs."""
    return home / "prometheus"


@dataclass(frozen=True)
class ClusterFolder:
    """`<home>/clusters/<name>/`."""

    root: Path

    @property
    def token(self) -> Path:
        return self.root / "token"

    @property
    def head_log(self) -> Path:
        """Return the file with the output of `ray start` itself."""
        return self.root / "head.log"

    @property
    def failed_start(self) -> Path:
        """Return the file with the last lines of Ray's logs when a start failed."""
        return self.root / "failed-start.log"

    @property
    def targets(self) -> Path:
        """Return the link to Ray's list of metrics endpoints, there while the head runs."""
        return targets_folder(self.root.parent.parent) / f"{self.root.name}.json"

    def link_targets(self, record: HeadRecord) -> None:
        """Link Ray's list of metrics endpoints, where Prometheus looks for those of all clusters.

        A start does not fail where that cannot be done.
        """
        scratch = self.targets.with_suffix(f".{secrets.token_hex(2)}")
        with suppress(OSError):
            private_folder(self.targets.parent)
            scratch.symlink_to(record.temp_dir / _RAY_TARGETS)
            scratch.replace(self.targets)

    @property
    def kept_logs(self) -> Path:
        """Return the folder of Ray's logs of the last head that is gone."""
        return self.root / "logs"

    @property
    def _record(self) -> Path:
        return self.root / "cluster.json"

    def create(self) -> None:
        try:
            private_folder(self.root)
        except OSError as error:
            raise _not_writable(self.root, error) from error

    def read(self) -> HeadRecord | None:
        """Return the record; None if there is none, or none that can be read."""
        try:
            return HeadRecord.model_validate_json(self._record.read_bytes())
        except (OSError, ValidationError):
            return None

    def write(self, record: HeadRecord) -> None:
        _write_private(self._record, record.model_dump_json(indent=2))

    def remove(self) -> None:
        """Forget the cluster with its logs; to be called by the lock's holder."""
        # Renamed first, so that no process finds half a cluster.
        trash = self.root.with_name(f".deleted-{self.root.name}-{secrets.token_hex(2)}")
        try:
            self.root.rename(trash)
        except OSError as error:
            raise _not_writable(self.root, error) from error
        shutil.rmtree(trash, ignore_errors=True)

    def write_start(self, record: HeadRecord) -> None:
        """Add what the start found, unless the head was stopped or replaced meanwhile."""
        now = self.read()
        is_same = now is not None and now.temp_dir == record.temp_dir
        if now is not None and is_same and now.stopping_s is None and now.stopped_s is None:
            self.write(now.with_start())

    def new_token(self) -> None:
        _write_private(self.token, secrets.token_hex(32))

    @contextmanager
    def lock(
        self, *, timeout_s: float, waiting: Callable[[], None] | None = None
    ) -> Iterator[None]:
        """Hold the lock for a start or a cleanup; the kernel frees it when its holder dies."""
        deadline = time.monotonic() + timeout_s
        reported = False
        with ExitStack() as stack:
            while (file := self._locked_file()) is None:
                if waiting is not None and not reported:
                    waiting()
                    reported = True
                if time.monotonic() > deadline:
                    raise ClusterStartError(
                        f"Another process has held the lock of this cluster for {timeout_s:.0f} s",
                        remedy=f"find that process with: fuser {self.root / 'lock'}",
                    )
                time.sleep(0.1)
            stack.enter_context(file)
            yield

    def _locked_file(self) -> TextIO | None:
        """Return the file; None while another process holds the lock, or deleted the folder."""
        self.create()
        try:
            file = (self.root / "lock").open("w")
        except OSError as error:
            raise _not_writable(self.root / "lock", error) from error
        with ExitStack() as stack:
            stack.enter_context(file)
            if _try_lock(file.fileno()) and _is_at(file, self.root / "lock"):
                stack.pop_all()
                return file
        return None

    def is_locked(self) -> bool:
        with suppress(OSError), (self.root / "lock").open("r") as file:
            return not _try_lock(file.fileno())
        return False


def cluster_folder(home: Path, name: str) -> ClusterFolder:
    """Return the folder.

    Raises ConfigError for a name that cannot be a folder (or a Kubernetes object).
    """
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"{name!r} cannot be the name of a cluster",
            remedy="use 1 to 40 lower-case letters, digits and dashes, such as 'local'",
        )
    return ClusterFolder(home / "clusters" / name)


def cluster_names(home: Path) -> list[str]:
    records = (home / "clusters").glob("*/cluster.json")
    return sorted(path.parent.name for path in records if _NAME.fullmatch(path.parent.name))


def _read_text(path: Path) -> str | None:
    try:
        return path.read_text().strip() or None
    except OSError:
        return None


def _try_lock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_at(file: TextIO, path: Path) -> bool:
    """Return False for a file that was deleted, with its folder, while we waited for it."""
    with suppress(OSError):
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    return False


def _write_private(path: Path, text: str) -> None:
    """Replace `path` in one step by a file that only its owner can read."""
    part = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    try:
        fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(fd, "w") as file:
            file.write(text)
            file.flush()
            os.fsync(fd)
        part.replace(path)
    except OSError as error:
        with suppress(OSError):
            part.unlink()
        raise _not_writable(path, error) from error


def _not_writable(path: Path, error: OSError) -> ClusterStartError:
    return ClusterStartError(
        f"Cannot write {path}: {error.strerror}",
        remedy="free some space or fix the permissions, or point LLMOPS_HOME at another folder",
    )


# --- Definition of a cluster ---
# What a cluster was started from, as far as it may be stored on disk: `env` may hold a secret.


@dataclass(frozen=True, kw_only=True)
class Definition:
    """Enough to start the same cluster again."""

    template: ClusterTemplate
    path: Path | None = None
    note: str = ""
    """Differences from the start; empty if nothing does."""

    def resized(self, *, num_cpus: int | None, num_gpus: int | None) -> Definition:
        """Return it with other numbers; None keeps a number. Raises ConfigError."""
        requested = {"num_cpus": num_cpus, "num_gpus": num_gpus}
        changes = {key: value for key, value in requested.items() if value is not None}
        if not changes:
            raise ConfigError(
                "Neither a number of CPUs nor of GPUs was given",
                remedy="give num_cpus or num_gpus",
            )
        return replace(
            self, template=_template({**self.template.model_dump(mode="json"), **changes})
        )


def recordable(template: ClusterTemplate) -> dict[str, Any]:
    """Return the template without `env`: it may hold secrets, and does not identify a head."""
    return template.model_dump(mode="json", exclude={"env", "name", "provider"})


def definition_of(record: HeadRecord) -> Definition:
    """Return the definition; `env` is read again from the template's file.

    Raises ConfigError for an unusable record.
    """
    env, note = _env_again(record)
    data = {**record.template, "name": record.name, "provider": "local", "env": env}
    return Definition(template=_template(data), path=record.template_path, note=note)


def _template(data: dict[str, Any]) -> ClusterTemplate:
    return resolved(ClusterTemplate, document_of(data))


def _env_again(record: HeadRecord) -> tuple[dict[str, str], str]:
    """Return the variables and what is unusual about them."""
    if record.env_names is None:
        return {}, "Started without `env`: whether its template sets any is not recorded"
    if not record.env_names:
        return {}, ""
    names = ", ".join(record.env_names)
    if record.template_path is None:
        return (
            {},
            f"Started without `env` ({names}): it is never stored, and there is no file to read"
            " it from",
        )
    try:
        template = load_cluster_template(record.template_path)
    except ConfigError as error:
        problem = error.message.splitlines()[0]
        return {}, f"Started without `env` ({names}): it is never stored, and {problem}"
    env = template.env if isinstance(template, ClusterTemplate) else {}
    if set(env) != set(record.env_names):
        now = ", ".join(sorted(env)) or "nothing"
        return env, f"`env` of {record.template_path} has changed: {names} before, {now} now"
    return env, ""


def difference(record: HeadRecord | None, template: ClusterTemplate) -> str:
    """Return how the running head differs from the template."""
    if record is None:
        return ""
    requested = recordable(template)
    # A record of an older version lacks the fields that it did not know.
    recorded = recordable(ClusterTemplate()) | record.template
    unlike = [
        f"{key}={_shown(recorded.get(key))} (the cluster template has {_shown(value)})"
        for key, value in requested.items()
        if recorded.get(key) != value
    ]
    if not unlike:
        return ""
    return (
        f"Attached to a running head with {', '.join(unlike)}."
        f" `llmops down {record.name}` and `up` apply the template"
    )


def _shown(value: Any) -> str:
    return "default" if value is None else str(value)
