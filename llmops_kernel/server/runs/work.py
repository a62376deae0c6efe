"""Work of the run routes: read one run in full, and start long operations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from llmops_kernel.api.run_handle import Run
from llmops_kernel.config.counted import counted
from llmops_kernel.jobs.follow import log_on_disk
from llmops_kernel.jobs.submit import Submission
from llmops_kernel.kinds.reading import program_of
from llmops_kernel.server.base import RequestError, below
from llmops_kernel.server.operations import Operations, Progress
from llmops_kernel.server.runs.followers import Followers
from llmops_kernel.server.runs.rows import RunRows, read_row
from llmops_kernel.server.wire.common import OperationInfo
from llmops_kernel.server.wire.runs import (
    QueueBody,
    ResubmitBody,
    RunAttempt,
    RunDetail,
    RunOutput,
    RunPreview,
    RunRow,
    SubmitBody,
)
from llmops_kernel.services import clusters, submission
from llmops_kernel.services.backend import Backend
from llmops_kernel.store.garbage import folder_size
from llmops_kernel.store.journal.view import RunView
from llmops_kernel.store.record import Attempt, RunRecord
from llmops_kernel.views.panel import PanelSamples, ProfileDetail
from llmops_kernel.views.profile import profile_detail
from llmops_kernel.views.snapshot import SAMPLE_PAGE, sample_table
from llmops_kernel.views.state_text import shown_outputs


def list_runs(rows: RunRows, *, hidden: bool = False) -> list[RunRow]:
    rows.open()
    try:
        rows.look()
        return rows.rows(hidden=hidden)
    finally:
        rows.close()


def detail(followers: Followers, ref: str, *, root: Path) -> RunDetail:
    with followers.watching(ref) as watched, watched.lock:
        run, view = watched.run, watched.view
        record, folder = run.record, run.folder
        row = read_row(watched, followers.store)
        return RunDetail(
            row=row,
            note=run.note,
            user=_submitter(record),
            host=record.host,
            config_path=record.config_path,
            config_yaml=folder.config.read_text(encoding="utf-8") if folder.config.exists() else "",
            overrides=record.overrides,
            versions=record.versions,
            git=_git(record),
            files=sorted(record.files),
            attempts=[_attempt(run, view, attempt) for attempt in run.attempts],
            outputs=[
                _output(output.label, output.path, root=root)
                for output in shown_outputs(view.outputs)
            ],
            checkpoints=[_output("checkpoint", e.path, root=root) for e in view.checkpoints],
            folder=str(folder.root),
            contents_path=contents_path(folder.root, root),
        )


def _submitter(record: RunRecord) -> str:
    """Return the user, with the agent that submitted it for him and its reason."""
    agent = record.agent
    return f"{record.user} (agent {agent.name}: {agent.reason})" if agent else record.user


def samples(followers: Followers, ref: str, *, first: int) -> PanelSamples:
    with followers.watching(ref) as watched, watched.lock:
        return sample_table(watched.view, first=first, most=SAMPLE_PAGE)


def contents_path(path: Path, root: Path) -> str | None:
    """Return the path for Jupyter's file browser; None outside its root and for hidden files."""
    resolved = path.resolve()
    if not resolved.is_relative_to(root):
        return None
    parts = resolved.relative_to(root).parts
    return None if any(part.startswith(".") for part in parts) else "/".join(parts)


def _git(record: RunRecord) -> str:
    if record.git is None:
        return ""
    details = [record.git.branch, "with changes" if record.git.dirty else None]
    text = ", ".join(part for part in details if part)
    return f"{record.git.revision[:12]} ({text})" if text else record.git.revision[:12]


def _attempt(run: Run, view: RunView, attempt: Attempt) -> RunAttempt:
    end = view.end_of(attempt.number)
    log = log_on_disk(run.folder, run.record, attempt)
    return RunAttempt(
        number=attempt.number,
        cluster=attempt.cluster,
        submission_id=attempt.submission_id,
        submitted_s=attempt.submitted_s,
        ended_s=end.time_s if end else None,
        state=end.state if end else None,
        message=end.message if end else "",
        resumed_from=attempt.resumed_from,
        log_bytes=None if log is None else log.size,
    )


def _output(what: str, path: str, *, root: Path) -> RunOutput:
    is_url = "://" in path
    return RunOutput(
        what=what.replace("_", " "),
        path=path,
        size_bytes=None if is_url else folder_size(Path(path)),
        contents_path=None if is_url else contents_path(Path(path), root),
    )


def run_named(backend: Backend, ref: str) -> Run:
    """Return a run by its id or a reference such as `last`. Raises RunNotFoundError."""
    return Run(backend, backend.store.resolve(ref))


def preview(backend: Backend, ref: str) -> RunPreview:
    """Return what deleting a run would remove and keep."""
    return RunPreview(**run_named(backend, ref).deletion().model_dump())


def submit(
    operations: Operations, backend: Backend, body: SubmitBody, *, root: Path
) -> OperationInfo:
    """Check the config at once (raises ConfigError) and submit it in the background."""
    request = replace(_submission_of(body, root), strict=body.strict)
    cluster = clusters.find(body.cluster, backend=backend)
    return _start(
        operations,
        "submit",
        request.config.name,
        _submitting(cluster, request),
        line="Packing the workspace and uploading what the cluster lacks",
    )


def _submission_of(body: SubmitBody, root: Path) -> Submission:
    path = None if body.path is None else below(root, body.path, must_exist=body.text is None)
    folder = below(root, body.workspace) if body.workspace is not None else None
    if body.text is not None and program_of(body.path or "") is None:
        workspace = folder or (path.parent if path is not None else root)
        shown_path = path.name if path is not None and path.parent == workspace else body.path
        return submission.from_text(
            body.text,
            name=body.path or "the text",
            workspace=workspace,
            config_path=shown_path,
            overrides=body.overrides,
        )
    if path is None:
        raise RequestError("give a path or a text to submit", status=422)
    request = submission.from_config(path, workspace=folder, overrides=body.overrides)
    # Paths in the record are those of Jupyter's file browser, not of the server's disk.
    shown_path = path.name if path.parent == request.workspace else body.path
    return replace(request, config_path=shown_path)


def _submitting(cluster: clusters.Cluster, request: Submission) -> Callable[[Progress], str]:
    return lambda report: submission.submit(cluster, request, progress=report).run_id


def resubmit(
    operations: Operations, backend: Backend, ref: str, body: ResubmitBody
) -> OperationInfo:
    """Submit a run's config with changes as a new run. Raises ConfigError at once."""
    run = run_named(backend, ref)
    request = submission.from_run(run.record, text=body.text, overrides=body.overrides)
    cluster = clusters.find(body.cluster or run.record.cluster, backend=backend)
    return _start(
        operations,
        "resubmit",
        run.id,
        _submitting(cluster, request),
        line=f"Submitting {request.config.name} to cluster {cluster.name}",
    )


def stop(operations: Operations, backend: Backend, ref: str) -> OperationInfo:
    """Request a stop in the background."""
    run = run_named(backend, ref)
    line = "Requesting a stop; the run saves its progress first"
    return _start_action(operations, "stop", run, run.stop, line=line)


def retry(operations: Operations, backend: Backend, ref: str) -> OperationInfo:
    """Start a new attempt in the background."""
    run = run_named(backend, ref)
    line = "Submitting the run to its cluster again, from what it has saved"
    return _start_action(operations, "retry", run, run.retry, line=line)


def restart(operations: Operations, backend: Backend, ref: str) -> OperationInfo:
    """End a run that makes no step, and start a new attempt, in the background."""
    run = run_named(backend, ref)
    line = "Ending the run and submitting it again, from its last checkpoint"
    return _start_action(operations, "restart", run, run.restart, line=line)


def profile(operations: Operations, backend: Backend, ref: str, *, steps: int) -> OperationInfo:
    """Hand the request for a profile to the run, in the background."""
    run = run_named(backend, ref)
    line = f"Asking the run to profile its next {counted(steps, 'step')}"
    return _start_action(operations, "profile", run, partial(run.profile, steps), line=line)


def move(operations: Operations, backend: Backend, ref: str, *, body: QueueBody) -> OperationInfo:
    """Move the run in its cluster's queue, in the background."""
    run = run_named(backend, ref)
    action = partial(run.queue, priority=body.priority, before=body.before)
    return _start_action(operations, "move", run, action, line="Telling the cluster's queue")


def profile_of(followers: Followers, ref: str, *, number: int) -> ProfileDetail:
    with followers.watching(ref) as watched, watched.lock:
        detail = profile_detail(watched.view, number)
    if detail is None:
        raise RequestError(f"Run {watched.run.id} has no profile {number}", status=404)
    return detail


def delete(operations: Operations, backend: Backend, ref: str) -> OperationInfo:
    """Delete a run's folder in the background: checkpoints may be large.

    Raises RunStateError at once while the run has not ended.
    """
    run = run_named(backend, ref)
    run.require_ended()
    return _start_action(
        operations, "delete-run", run, run.delete, line="Deleting the run's folder"
    )


def _start_action(
    operations: Operations, kind: str, run: Run, action: Callable[[], object], *, line: str
) -> OperationInfo:
    def work(_: Progress) -> str:
        action()
        return run.id

    return _start(operations, kind, run.id, work, line=line)


def _start(
    operations: Operations, kind: str, what: str, work: Callable[[Progress], str], *, line: str
) -> OperationInfo:
    """Start `work`, which returns a run's id; `line` is the first one of its progress."""

    def reported(report: Progress) -> dict[str, Any]:
        report(line)
        return {"run_id": work(report)}

    return operations.start(kind, what, reported)
