"""From a training config to a job that Ray has taken: check, snapshot, record, upload, post."""

from __future__ import annotations

import getpass
import os
import platform
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import llmops_kernel
from llmops_kernel.clusters.provider import ClusterInfo
from llmops_kernel.config.load import check_files, dump_yaml
from llmops_kernel.config.problems import config_error
from llmops_kernel.config.train import TrainingConfig
from llmops_kernel.errors import LLMOpsError
from llmops_kernel.jobs.client import JobsClient
from llmops_kernel.metrics.events import EndEvent, PhaseEvent
from llmops_kernel.runs.git import read_git
from llmops_kernel.runs.journal import JournalWriter
from llmops_kernel.runs.packages import Packages, build
from llmops_kernel.runs.paths import cache
from llmops_kernel.runs.record import Attempt, RunRecord, new_run_id
from llmops_kernel.runs.spec import RunSpec
from llmops_kernel.runs.store import RunStore
from llmops_kernel.runs.workspace import Workspace, scan

ENTRYPOINT = "python -m llmops_kernel.train.entrypoint"
# Constants only: runs of the same code then share one runtime environment on each node,
# and the processes that Ray keeps warm for it.
ENV_VARS = {
    "RAY_TRAIN_V2_ENABLED": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "PYTHONUNBUFFERED": "1",
}
PASSED_ON = ("HF_HUB_OFFLINE",)
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
class Handover:
    """An attempt that is written down and not yet with Ray."""

    store: RunStore
    record: RunRecord
    attempt: Attempt
    config: TrainingConfig
    cluster: ClusterInfo
    env_vars: Mapping[str, str] | None = None
    """Added to the runtime environment of this attempt's processes."""

    def entrypoint(self) -> str:
        spec = RunSpec(
            run_id=self.record.run_id,
            attempt=self.attempt.number,
            config=self.config.model_dump(mode="json"),
            run_root=str(self.store.folder(self.record.run_id).root),
            workspace_root=self.record.workspace_root,
            submitted_s=self.attempt.submitted_s,
            cache_root=str(cache()),
        )
        return f"{ENTRYPOINT} {spec.encode()}"

    @contextmanager
    def journal(self) -> Iterator[JournalWriter]:
        """The client's stream; a failure inside becomes the attempt's end."""
        number = self.attempt.number
        folder = self.store.folder(self.record.run_id).journal
        writer = JournalWriter([folder], stream=f"{number}-client", attempt=number)
        try:
            yield writer
        except LLMOpsError as error:
            writer.emit(EndEvent(state="FAILED", message=error.message, remedy=error.remedy))
            raise
        except BaseException as error:
            message = f"The client was interrupted while it submitted ({type(error).__name__})"
            writer.emit(EndEvent(state="FAILED", message=message, remedy="`run.retry()`"))
            raise
        finally:
            writer.close()


def submit_run(
    *,
    store: RunStore,
    cluster: ClusterInfo,
    client: JobsClient,
    config: TrainingConfig,
    workspace: Path,
    config_path: str | None = None,
    overrides: Mapping[str, Any] | None = None,
    parent: str | None = None,
    env_vars: Mapping[str, str] | None = None,
) -> tuple[RunRecord, Attempt]:
    """Returns when Ray has taken the job. Raises before anything is written or started when
    the config, its files or the workspace are wrong or the cluster does not answer.
    `env_vars` are set in all processes of this one attempt; a retry does not have them.
    """
    begun_s = time.time()
    snapshot, packages = _packed(workspace.resolve(), config=config, store=store, client=client)
    git, git_diff = read_git(workspace)
    record = RunRecord(
        run_id=new_run_id(config.name),
        name=config.name,
        created_s=begun_s,
        config=config.model_dump(mode="json"),
        config_path=config_path,
        overrides=dict(overrides or {}),
        git=git,
        parent=parent,
        **_snapshot_fields(snapshot, packages),
        **_surroundings(cluster),
    )
    store.create(record, config_yaml=dump_yaml(config), git_diff=git_diff)
    handover = _first_attempt(store, record, config=config, cluster=cluster, env_vars=env_vars)
    with handover.journal() as journal:
        journal.emit(PhaseEvent(name="snapshot", state="begin", time_s=begun_s))
        told = f"{len(snapshot.files)} files"
        journal.emit(PhaseEvent(name="snapshot", state="end", detail=told))
        hand_over(handover, packages=package_files(packages), client=client, journal=journal)
    return record, handover.attempt


def _packed(
    workspace: Path, *, config: TrainingConfig, store: RunStore, client: JobsClient
) -> tuple[Workspace, Packages]:
    """Check the files that the config names and the cluster, then pack the workspace."""
    if problems := check_files(config, workspace):
        raise config_error(problems)
    client.version()
    snapshot = scan(workspace)
    return snapshot, build(snapshot, store.packages)


def _first_attempt(
    store: RunStore,
    record: RunRecord,
    *,
    config: TrainingConfig,
    cluster: ClusterInfo,
    env_vars: Mapping[str, str] | None,
) -> Handover:
    attempt = Attempt(
        number=1,
        submission_id=f"{record.run_id}-1",
        cluster=cluster.name,
        dashboard_url=cluster.dashboard_url or "",
        place=place_of(cluster),
        submitted_s=record.created_s,
    )
    store.add_attempt(record.run_id, attempt)
    return Handover(
        store=store,
        record=record,
        attempt=attempt,
        config=config,
        cluster=cluster,
        env_vars=env_vars,
    )


def place_of(cluster: ClusterInfo) -> str:
    """For an attempt; empty for a cluster that is not on Kubernetes."""
    if cluster.context is None or cluster.namespace is None:
        return ""
    own_name = cluster.name.rpartition("/")[2]
    return f"{cluster.context}/{cluster.namespace}/{own_name}"


def package_files(packages: Packages) -> list[PackageFile]:
    kinds = {"code": packages.code, "library": packages.library, "assets": packages.assets}
    return [
        PackageFile(role=role, name=package.name, path=package.path)
        for role, package in kinds.items()
        if package is not None
    ]


def hand_over(
    handover: Handover, *, packages: list[PackageFile], client: JobsClient, journal: JournalWriter
) -> None:
    """Upload what the cluster lacks and post the job."""
    journal.emit(PhaseEvent(name="upload", state="begin"))
    detail = _upload(packages, client=client)
    journal.emit(PhaseEvent(name="upload", state="end", detail=detail))
    journal.emit(PhaseEvent(name="pending", state="begin"))
    submission_id = handover.attempt.submission_id
    try:
        client.submit(
            entrypoint=handover.entrypoint(),
            submission_id=submission_id,
            runtime_env=runtime_env(packages, cluster=handover.cluster, env_vars=handover.env_vars),
            metadata={
                "llmops_run": handover.record.run_id,
                "llmops_attempt": str(handover.attempt.number),
                "llmops_user": handover.record.user,
            },
        )
    except BaseException:
        # Ray may have taken it all the same; nothing may run that its owner believes failed.
        with suppress(LLMOpsError):
            client.stop(submission_id)
        raise
    journal.emit(PhaseEvent(name="pending", state="end"))
    # The driver tells its end: when the process above it was born.
    journal.emit(PhaseEvent(name="runtime_env", state="begin"))


def runtime_env(
    packages: list[PackageFile],
    *,
    cluster: ClusterInfo,
    env_vars: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    own = ENV_VARS | {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    if cluster.ray_address:
        # Ray Train's helpers look for a Ray on their host and give up when they find two.
        own["RAY_ADDRESS"] = cluster.ray_address
    return {
        "working_dir": next(package.uri for package in packages if package.role == "code"),
        "py_modules": [package.uri for package in packages if package.role != "code"],
        "env_vars": own | dict(env_vars or {}),
    }


def _upload(packages: list[PackageFile], *, client: JobsClient) -> str:
    """Send the missing packages; returns what was done, for people."""
    done = []
    for package in packages:
        is_there = client.package_exists(package.name)
        if not is_there:
            client.upload_package(package.path, name=package.name)
        size_kb = package.path.stat().st_size / 1e3
        done.append(f"{package.role} {'reused' if is_there else 'sent'} ({size_kb:,.1f} kB)")
    return ", ".join(done)


def _snapshot_fields(snapshot: Workspace, packages: Packages) -> dict[str, Any]:
    return {
        "workspace_root": str(snapshot.root),
        "code_hash": packages.code.hash,
        "assets_hash": packages.assets.hash if packages.assets else "",
        "package_hash": packages.library.hash,
        "files": {name: entry.sha256_16 for name, entry in snapshot.files.items()},
    }


def _surroundings(cluster: ClusterInfo) -> dict[str, Any]:
    return {
        "cluster": cluster.name,
        "provider": cluster.provider,
        "versions": _versions(),
        "host": socket.gethostname(),
        "user": _user(),
        "hardware": {
            "num_nodes": cluster.num_nodes,
            "num_cpus": cluster.num_cpus,
            "num_gpus": cluster.num_gpus,
        },
    }


def _versions() -> dict[str, str]:
    """Of the client's installation; what the workers have is in the journal's start event."""
    found = {"python": platform.python_version(), "llmops-kernel": llmops_kernel.__version__}
    for name in _VERSIONS:
        with suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return ""  # A container's user id without a name.
