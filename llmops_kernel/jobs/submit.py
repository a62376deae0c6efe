"""Submit a run of any kind to Ray: check, snapshot, record, upload, post the job."""

from __future__ import annotations

import getpass
import os
import platform
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

from llmops_kernel.config.counted import counted
from llmops_kernel.config.models.section import RunConfig
from llmops_kernel.config.problems import Problem, config_error, no_such_file
from llmops_kernel.config.reading.document import dump
from llmops_kernel.errors import LLMOpsError, SubmissionError
from llmops_kernel.jobs.client import JobsClient
from llmops_kernel.jobs.upload import check_ray_version
from llmops_kernel.kinds.kind import RunKind
from llmops_kernel.kinds.reading import file_kind
from llmops_kernel.metrics.events import EndEvent, PhaseEvent
from llmops_kernel.providers.protocol import ClusterInfo
from llmops_kernel.providers.registry import shares_disk
from llmops_kernel.store.code import read_git
from llmops_kernel.store.journal.journal import JournalWriter
from llmops_kernel.store.package import assets
from llmops_kernel.store.package.packages import Packages, build
from llmops_kernel.store.package.workspace import Workspace, scan
from llmops_kernel.store.paths import RUN_STORAGE_ENV_VAR
from llmops_kernel.store.record import (
    DRIVER_METADATA,
    AgentMark,
    Attempt,
    Priority,
    RunRecord,
    RunSpec,
    new_run_id,
)
from llmops_kernel.store.run_notes import RunNotes
from llmops_kernel.store.store import RunStore, submitting
from llmops_kernel.trackers.tracker import facts_of
from llmops_kernel.version import VERSION

# Constants only: runs of the same code then share one runtime environment on each node,
# and the processes that Ray keeps warm for it.
ENV_VARS = {
    "RAY_TRAIN_V2_ENABLED": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "PYTHONUNBUFFERED": "1",
}
PASSED_ON = ("HF_HUB_OFFLINE",)
GROUP_ENV_VAR = "LLMOPS_GROUP"
"""Group of what this process submits where a submission names none: a schedule sets it for its
notebook."""
WAITING_BYTES = 128 * 1024**2
"""What a run keeps of memory while it waits on a local cluster: its driver and Ray's supervisor,
forked, had 101 to 130 MB of their own."""
COLD_WAITING_BYTES = 384 * 1024**2
"""The same where no fork server runs: 331 MB."""
WAITING_SHARE = 1 / 3
"""Of the machine's memory, what waiting runs may keep."""
WAITING_EACH_CPU = 48
"""So many may wait for each CPU: those that are not next look at the queue every ten seconds."""
FEW_WAITING = 8
"""So many may wait in any case."""
_VERSIONS = ("ray", "torch", "transformers", "deepspeed", "peft", "accelerate", "datasets")


@dataclass(frozen=True)
class PackageFile:
    """One zip that a run needs on the cluster."""

    role: str
    """`code`, `library` or `assets`."""
    name: str
    """`_ray_pkg_<hash>.zip`."""
    path: Path

    @property
    def uri(self) -> str:
        return f"gcs://{self.name}"


@dataclass(frozen=True, kw_only=True)
class Submission:
    """A run to submit: its checked config, the folder that is uploaded, how it is recorded."""

    kind: RunKind
    config: RunConfig
    """The run id begins with its name."""
    workspace: Path
    """Folder of code and data; relative paths of the config start here."""
    config_path: str | None = None
    """Where the config came from; stored in the run record."""
    overrides: Mapping[str, Any] = field(default_factory=dict)
    """Changes, as they were written, for the record."""
    parent: str | None = None
    """Id of the run that is submitted again."""
    group: str = ""
    """Group of the run, which users may change later."""
    priority: Priority = "normal"
    """Where it stands among the runs that wait on the cluster."""
    project: str = ""
    """Project of the run, which users may change later."""
    sweep: str = ""
    """Id of the sweep whose trial it is."""
    hidden: bool = False
    """Whether lists leave the run out unless asked for."""
    env_vars: Mapping[str, str] | None = None
    """Environment variables of this one attempt; a retry does not have them."""
    checks: bool = True
    """Whether rows are tried before a run that has to wait; False: its config was checked."""
    prepares: bool = True
    """Whether what the kind needs on this machine is made first, such as vLLM's environment."""
    agent: AgentMark | None = None
    """The program that submits it for the user, and why."""
    strict: bool = False
    """Whether a training that the planner expects not to fit is refused instead of warned of."""

    def problems(self, folder: Path) -> list[Problem]:
        """Return what is wrong with the files in the workspace `folder` that the config names."""
        if not self.kind.config_file:
            return []
        problems = [*file_kind(self.kind).check_files(self.config, folder)]
        requirements = getattr(self.config, "requirements", None)
        if requirements and not (folder / requirements).is_file():
            names = [str(path.relative_to(folder)) for path in sorted(folder.glob("*.txt"))]
            problems.append(no_such_file("requirements", requirements, folder, names))
        return problems

    def record(
        self, cluster: ClusterInfo, *, snapshot: Workspace, packages: Packages, created_s: float
    ) -> tuple[RunRecord, str]:
        """Return the record of a new run, and the difference of its code to the git revision."""
        git, difference = read_git(self.workspace)
        config = self.config.model_dump(mode="json")
        record = RunRecord(
            run_id=new_run_id(self.config.name),
            kind=self.kind.name,
            name=self.config.name,
            created_s=created_s,
            cluster=cluster.name,
            provider=cluster.provider,
            config=config,
            config_path=self.config_path,
            overrides=dict(self.overrides),
            workspace_root=str(snapshot.root),
            code_hash=packages.code.hash,
            assets_hash=packages.assets.hash if packages.assets else "",
            package_hash=packages.library.hash,
            files={name: entry.sha256_16 for name, entry in snapshot.files.items()},
            left_out=snapshot.left_out,
            ignored=_ignored(snapshot, config),
            git=git,
            versions=client_versions(),
            host=socket.gethostname(),
            user=user_name(),
            agent=self.agent,
            hardware=hardware_of(cluster),
            parent=self.parent,
            sweep=self.sweep,
            hidden=self.hidden,
        )
        return record, difference


def entrypoint_of(kind: RunKind) -> str:
    """Return the entrypoint. Raises SubmissionError for a kind that this version cannot run."""
    if not kind.entrypoint:
        raise SubmissionError(
            f"This version of llmops-kernel cannot run a {kind.name!r} run",
            remedy="install the version that submitted it: pip install --upgrade llmops-kernel",
        )
    return kind.entrypoint


def check_waiting(cluster: ClusterInfo) -> None:
    """Raise SubmissionError if more runs wait on a local cluster than its memory is for.

    Ray starts the driver of each run at once, also of those whose turn is hours away.
    """
    active, cpus, memory = cluster.jobs_running, cluster.num_cpus, cluster.memory_bytes
    if not shares_disk(cluster.provider) or active is None or cpus is None or memory is None:
        return
    each = WAITING_BYTES if cluster.warm in ("", "warm", "starting") else COLD_WAITING_BYTES
    has_room_for = int(min(WAITING_SHARE * memory / each, WAITING_EACH_CPU * cpus))
    most = max(FEW_WAITING, has_room_for)
    if active - cpus < most:
        return
    raise SubmissionError(
        f"{counted(active, 'run')} are active on cluster {cluster.name!r} with"
        f" {counted(cpus, 'CPU')}, and at most {most} may wait: each keeps about"
        f" {each / 1024**2:.0f} MiB of memory",
        remedy="submit it when some have ended, or `llmops stop` those that are not wanted any"
        " more; `llmops runs --where \"state == 'QUEUED'\"` lists them",
    )


def submit_run(
    submission: Submission, *, store: RunStore, cluster: ClusterInfo, client: JobsClient
) -> tuple[RunRecord, Attempt]:
    """Return when Ray has accepted the job.

    Raises before anything is written or started when the files that the config names or the
    workspace are wrong, or the cluster does not answer.
    """
    begun_s = time.time()
    check_waiting(cluster)
    entrypoint = entrypoint_of(submission.kind)
    workspace = submission.workspace.resolve()
    if problems := submission.problems(workspace):
        raise config_error(problems)
    check_ray_version(client.version())
    snapshot = scan(workspace)
    packages = build(snapshot, store.packages)
    record, difference = submission.record(
        cluster, snapshot=snapshot, packages=packages, created_s=begun_s
    )
    attempt = new_attempt(
        record, cluster, number=1, submitted_s=begun_s, priority=submission.priority
    )
    # The phase began before there was a run to journal it for.
    packed = [
        PhaseEvent(name="snapshot", state="begin", time_s=begun_s),
        PhaseEvent(name="snapshot", state="end", detail=f"{len(snapshot.files)} files"),
    ]
    with submitting(store.root, record.run_id):
        group = submission.group or os.environ.get(GROUP_ENV_VAR, "")[:60]
        notes = RunNotes(group=group, project=submission.project)
        store.create(record, config_yaml=dump(record.config), git_diff=difference, notes=notes)
        start_attempt(
            record,
            attempt,
            store=store,
            cluster=cluster,
            client=client,
            packages=package_files(packages),
            entrypoint=entrypoint,
            env_vars=submission.env_vars,
            phases=packed,
        )
    return record, attempt


def new_attempt(
    record: RunRecord,
    cluster: ClusterInfo,
    *,
    number: int,
    submitted_s: float,
    resumed_from: str | None = None,
    priority: Priority = "normal",
) -> Attempt:
    """Return an attempt of a run on a cluster."""
    return Attempt(
        number=number,
        submission_id=f"{record.run_id}-{number}",
        cluster=cluster.name,
        dashboard_url=cluster.dashboard_url or "",
        location=location_of(cluster),
        submitted_s=submitted_s,
        run_storage=run_storage_of(cluster),
        resumed_from=resumed_from,
        priority=priority,
    )


def location_of(cluster: ClusterInfo) -> str:
    """Return `context/namespace/name` for the attempt; empty for a cluster outside Kubernetes."""
    if cluster.context is None or cluster.namespace is None:
        return ""
    own_name = cluster.name.rpartition("/")[2]
    return f"{cluster.context}/{cluster.namespace}/{own_name}"


def run_storage_of(cluster: ClusterInfo) -> str:
    """Return where the cluster keeps what runs write; empty for the nodes' own disks.

    A local head has it from the environment of the `llmops up` that started it.
    """
    if cluster.context is None:
        return os.environ.get(RUN_STORAGE_ENV_VAR, "")
    return cluster.run_storage or ""


def package_files(packages: Packages) -> list[PackageFile]:
    kinds = {"code": packages.code, "library": packages.library, "assets": packages.assets}
    return [
        PackageFile(role=role, name=package.name, path=package.path)
        for role, package in kinds.items()
        if package is not None
    ]


def start_attempt(
    record: RunRecord,
    attempt: Attempt,
    *,
    store: RunStore,
    cluster: ClusterInfo,
    client: JobsClient,
    packages: list[PackageFile],
    entrypoint: str,
    env_vars: Mapping[str, str] | None = None,
    phases: Sequence[PhaseEvent] = (),
) -> None:
    """Record an attempt, upload the packages that the cluster does not have, and post the job.

    `env_vars` are set in all processes of this attempt; `phases` are journalled before its own.
    """
    store.add_attempt(record.run_id, attempt)
    folder = store.folder(record.run_id)
    facts = facts_of(record, attempt) if record.config.get("report_to") else {}
    most = cluster.most_resources
    spec = RunSpec.of(record, attempt, run_root=folder.root, most_resources=most, facts=facts)
    with client_journal(folder.journal, record, attempt) as journal:
        for event in (*phases, PhaseEvent(name="upload", state="begin")):
            journal.emit(event)
        detail = _upload(packages, client=client)
        journal.emit(PhaseEvent(name="upload", state="end", detail=detail))
        journal.emit(PhaseEvent(name="pending", state="begin"))
        try:
            client.submit(
                entrypoint=entrypoint,
                submission_id=attempt.submission_id,
                runtime_env=runtime_env(packages, cluster=cluster, env_vars=env_vars),
                metadata={
                    "llmops_run": record.run_id,
                    "llmops_attempt": str(attempt.number),
                    "llmops_user": record.user,
                    DRIVER_METADATA: spec.encode(),
                },
            )
        except BaseException:
            # Ray may have accepted it; no job may run that its owner believes failed.
            with suppress(LLMOpsError):
                client.stop(attempt.submission_id)
            raise
        journal.emit(PhaseEvent(name="pending", state="end"))
        # The driver reports the end: when its parent process was created.
        journal.emit(PhaseEvent(name="runtime_env", state="begin"))


@contextmanager
def client_journal(folder: Path, record: RunRecord, attempt: Attempt) -> Iterator[JournalWriter]:
    """Write the client's stream; an exception inside becomes the attempt's end."""
    number = attempt.number
    writer = JournalWriter([folder], stream=f"{number}-client", attempt=number)
    try:
        yield writer
    except LLMOpsError as error:
        writer.emit(EndEvent(state="FAILED", message=error.message, remedy=error.remedy))
        raise
    except BaseException as error:
        message = f"The client was interrupted while it submitted ({type(error).__name__})"
        remedy = f"`llmops retry {record.run_id}` submits it again"
        writer.emit(EndEvent(state="FAILED", message=message, remedy=remedy))
        raise
    finally:
        writer.close()


def runtime_env(
    packages: list[PackageFile],
    *,
    cluster: ClusterInfo,
    env_vars: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    own = ENV_VARS | {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    if cluster.ray_address:
        # Ray Train's helpers look for a Ray on their host and fail when there are two.
        own["RAY_ADDRESS"] = cluster.ray_address
    return {
        "working_dir": next(package.uri for package in packages if package.role == "code"),
        "py_modules": [package.uri for package in packages if package.role != "code"],
        "env_vars": own | dict(env_vars or {}),
    }


def _upload(packages: list[PackageFile], *, client: JobsClient) -> str:
    """Upload the missing packages; return a line about what was done."""
    done = []
    for package in packages:
        exists = client.package_exists(package.name)
        if not exists:
            client.upload_package(package.path, name=package.name)
        size_kb = package.path.stat().st_size / 1e3
        done.append(f"{package.role} {'reused' if exists else 'sent'} ({size_kb:,.1f} kB)")
    return ", ".join(done)


def _ignored(snapshot: Workspace, config: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what ignore files keep at home, what the run's own code names first."""
    if not snapshot.ignored:
        return ()
    named = assets.named_by(
        assets.sources_of(config, snapshot.root), snapshot.ignored, snapshot.root
    )
    return tuple(dict.fromkeys([*named, *snapshot.ignored]))[: assets.MOST]


def client_versions() -> dict[str, str]:
    """Versions in the client's installation; those of the workers are in the start event."""
    versions = {"python": platform.python_version(), "llmops-kernel": VERSION}
    for name in _VERSIONS:
        with suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    return versions


def hardware_of(cluster: ClusterInfo) -> dict[str, Any]:
    """Return what the record keeps of a cluster's size."""
    return {
        "num_nodes": cluster.num_nodes,
        "num_cpus": cluster.num_cpus,
        "num_gpus": cluster.num_gpus,
    }


def user_name() -> str:
    """Return the name of this process's user; empty where there is none."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return ""  # A container's user id without a name.
