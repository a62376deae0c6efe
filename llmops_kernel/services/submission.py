"""Turns a config and changes to it into a run that Ray has accepted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from llmops_kernel.config.models.cluster import AnyTemplate, ClusterTemplate
from llmops_kernel.config.models.section import RunConfig
from llmops_kernel.config.models.train import TrainingConfig
from llmops_kernel.config.reading.shape import Overrides
from llmops_kernel.errors import ConfigError
from llmops_kernel.jobs.history import about_outputs
from llmops_kernel.jobs.submit import Submission, client_journal, submit_run
from llmops_kernel.kinds import reading
from llmops_kernel.kinds.kind import RunKind, load_attribute
from llmops_kernel.kinds.reading import (
    ConfigLike,
    changes_in,
    combined,
    kind_of,
    load,
    program_of,
)
from llmops_kernel.kinds.registry import kind_named
from llmops_kernel.metrics.events import WarningEvent
from llmops_kernel.providers.protocol import ClusterInfo, Progress
from llmops_kernel.services.check import check_before
from llmops_kernel.services.clusters import Cluster
from llmops_kernel.store.package import assets
from llmops_kernel.store.package.workspace import Workspace, left_out_line, scan
from llmops_kernel.store.record import RunRecord
from llmops_kernel.warm.plan import REFUSE_ENV_VAR

__all__ = ["Submission", "from_config", "from_run", "from_text", "from_words", "preview", "submit"]


def from_config(
    config: ConfigLike,
    *,
    workspace: Path | str | None = None,
    overrides: Overrides = (),
    settings: Mapping[str, Any] | None = None,
    kind: RunKind | None = None,
) -> Submission:
    """Read a file, a dict or a config. Raises ConfigError with all mistakes at once.

    `workspace` defaults to the folder of the file, else the current folder; `kind` saves finding
    it again.
    """
    kind = kind or kind_of(config)
    path = Path(config) if isinstance(config, str | Path) else None
    root = Path(workspace) if workspace else path.resolve().parent if path else Path.cwd()
    shown = shown_path(path, root)
    changes = combined(overrides, settings or {})
    return Submission(
        kind=kind,
        config=load(config, changes, workspace=root, kind=kind),
        workspace=root,
        config_path=shown,
        overrides=as_mapping(changes),
    )


def from_words(
    path: Path,
    words: Sequence[str],
    *,
    workspace: Path | None = None,
    settings: Mapping[str, Any],
    packages: Sequence[str] = (),
) -> Submission:
    """Read a file with the words behind it on a command line. Raises ConfigError.

    The `packages` are added to those that the config names itself.
    """
    kind = kind_of(path)
    if packages:
        config = load(path, (), kind=kind) if program_of(path, kind) is None else None
        settings = {**settings, "packages": [*getattr(config, "packages", ()), *packages]}
    changes = changes_in(words, path, kind)
    return from_config(path, workspace=workspace, overrides=changes, settings=settings, kind=kind)


def from_text(
    text: str, *, name: str, workspace: Path, config_path: str | None, overrides: Overrides = ()
) -> Submission:
    """Read a config that is not saved yet; `name` is what error messages call it."""
    kind = kind_of(name)
    config = reading.from_text(kind, text, overrides, name=name, workspace=workspace)
    return Submission(
        kind=kind,
        config=config,
        workspace=workspace,
        config_path=config_path,
        overrides=as_mapping(overrides),
    )


def from_run(
    record: RunRecord,
    *,
    text: str | None = None,
    workspace: Path | str | None = None,
    overrides: Overrides = (),
    settings: Mapping[str, Any] | None = None,
) -> Submission:
    """Return a new submission of a run's config with changes, or of the edited `text` of it."""
    changes = combined(overrides, settings or {})
    kind = kind_named(record.kind)
    config = (
        reading.from_record(kind, record.config, changes)
        if text is None
        else reading.from_text(kind, text, changes, name="the edited config")
    )
    return Submission(
        kind=kind,
        config=config,
        workspace=Path(workspace or record.workspace_root),
        config_path=record.config_path,
        overrides=as_mapping(changes),
        parent=record.run_id,
    )


def submit(
    cluster: Cluster, submission: Submission, *, progress: Progress | None = None
) -> RunRecord:
    """Submit to a cluster and return as soon as Ray has accepted the job.

    What the kind needs on this machine is made first: of a scoring vLLM's own environment, once
    and in minutes. Raises MissingDependencyError; ConfigError if the submission is `strict` and
    the planner expects that the training does not fit.
    """
    store, kind = cluster.backend.store, submission.kind
    if kind.complete:
        config = load_attribute(kind.complete)(submission.config, store)
        submission = replace(submission, config=config)
    info = cluster.ready_info(progress=progress)
    if submission.strict and (warning := _memory_warning(cluster, info, submission)):
        raise ConfigError(warning.message, remedy=warning.remedy)
    waits = cluster.provider.shares_disk and will_wait(info, submission.config)
    if submission.checks and waits and kind.config_file:
        check_before(submission.config, submission.workspace, progress=progress)
    if kind.prepare and submission.prepares:
        load_attribute(kind.prepare)(submission.config, cluster.provider, progress=progress)
    with cluster.client(progress=progress) as client:
        record, attempt = submit_run(submission, store=store, cluster=info, client=client)
    # After Ray has the job, which does not wait for a plan.
    if not submission.strict and (warning := _memory_warning(cluster, info, submission)):
        with client_journal(store.folder(record.run_id).journal, record, attempt) as journal:
            journal.emit(warning)
        if progress is not None:
            progress(f"Warning: {warning.message} Next: {warning.remedy}")
    if progress is not None and record.left_out:
        progress(left_out_line(record.left_out))
    if progress is not None and (line := _about_ignored(record)):
        progress(line)
    if progress is not None and (about := about_outputs(cluster.provider, cluster.name)):
        progress(about)
    return record


def will_wait(info: ClusterInfo, config: RunConfig) -> bool:
    """Return whether a run will wait: others leave too little for it, or nobody knows.

    Before Ray's first report of what is used, each active run counts for one device.
    """
    if not info.jobs_running:
        return False
    has_gpus = bool(info.num_gpus)
    total = info.num_gpus if has_gpus else info.num_cpus
    used = info.gpus_used if has_gpus else info.cpus_used
    if total is None:
        return True
    left = total - (info.jobs_running if used is None else used)
    return left < max(1, config.worker_processes)


def _memory_warning(
    cluster: Cluster, info: ClusterInfo, submission: Submission
) -> WarningEvent | None:
    """Return a warning if a training will probably not fit; None where that is not known."""
    if not isinstance(submission.config, TrainingConfig):
        return None
    from llmops_kernel.services.plan import memory_warning

    template: AnyTemplate | None
    try:
        if cluster.provider.shares_disk:
            gpus = None if info.num_gpus is None else int(info.num_gpus)
            template = ClusterTemplate(name=cluster.name, num_gpus=gpus)
        else:
            template = cluster.provider.template(cluster.name)
        root = submission.workspace.resolve()
        return None if template is None else memory_warning(submission.config, root, template)
    except Exception:  # A submission does not fail for want of an estimate.
        return None


def _about_ignored(record: RunRecord) -> str:
    """Return the sentence about files that the run's own code names and that stayed at home."""
    if not record.ignored:
        return ""
    root = Path(record.workspace_root)
    sources = assets.sources_of(record.config, root)
    named = assets.named_by(sources, record.ignored, root)
    what = " and ".join(source.name for source in sources)
    return assets.at_home_line(named, what=what)


def about_left_out(left_out: Sequence[str]) -> str:
    """Return the sentence about files that stay at home as secrets; empty if none do."""
    return left_out_line(left_out)


def preview(submission: Submission) -> Workspace:
    """Return what a submission would upload; no cluster is asked. Raises WorkspaceError."""
    return scan(submission.workspace.resolve())


def cold_start(reason: str) -> dict[str, str]:
    """Return environment variables of an attempt whose processes must start cold."""
    return {REFUSE_ENV_VAR: reason}


def is_program(record: RunRecord) -> bool:
    """Return whether the run is a program of the user's own, whose output is its result."""
    return bool(kind_named(record.kind).programs)


def as_mapping(overrides: Overrides) -> dict[str, Any]:
    """Return the changes as they were written, by field."""
    if isinstance(overrides, Mapping):
        return dict(overrides)
    parts = (text.partition("=") for text in overrides)
    return {key.strip(): value.strip() for key, _, value in parts}


def shown_path(path: Path | None, root: Path) -> str | None:
    if path is None:
        return None
    resolved, root = path.resolve(), root.resolve()
    return str(resolved.relative_to(root)) if resolved.is_relative_to(root) else str(resolved)
