"""What the run routes do: read one run in full, and start what takes a while."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from llmops_kernel import api
from llmops_kernel.api.cluster_handle import as_mapping
from llmops_kernel.api.run_handle import Run
from llmops_kernel.config.load import (
    load_training_config,
    training_config_from_dict,
    training_config_from_text,
)
from llmops_kernel.config.train import TrainingConfig
from llmops_kernel.errors import RunStateError
from llmops_kernel.jobs.log_source import log_on_disk
from llmops_kernel.metrics.events import TERMINAL
from llmops_kernel.runs.deletion import folder_size
from llmops_kernel.runs.record import Attempt, RunRecord
from llmops_kernel.runs.view import RunView
from llmops_kernel.server.base import RequestError, below
from llmops_kernel.server.followers import Followers
from llmops_kernel.server.operations import Operations, Progress
from llmops_kernel.server.run_rows import RunRows, read_row
from llmops_kernel.server.wire.common import OperationInfo
from llmops_kernel.server.wire.runs import (
    ResubmitBody,
    RunAttempt,
    RunDetail,
    RunOutput,
    RunPreview,
    RunRow,
    SubmitBody,
)


def list_runs(rows: RunRows) -> list[RunRow]:
    rows.open()
    try:
        rows.look()
        return rows.rows()
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
            user=record.user,
            host=record.host,
            config_path=record.config_path,
            config_yaml=folder.config.read_text(encoding="utf-8") if folder.config.exists() else "",
            overrides=record.overrides,
            versions=record.versions,
            git=_git(record),
            files=sorted(record.files),
            attempts=[_attempt(run, view, attempt) for attempt in run.attempts],
            outputs=[_output(event.what, event.path, root=root) for event in view.outputs],
            checkpoints=[_output("checkpoint", e.path, root=root) for e in view.checkpoints],
            folder=str(folder.root),
            contents_path=contents_path(folder.root, root),
        )


def contents_path(path: Path, root: Path) -> str | None:
    """For Jupyter's file browser, which hides what begins with a dot; None outside its root."""
    resolved = path.resolve()
    if not resolved.is_relative_to(root):
        return None
    parts = resolved.relative_to(root).parts
    return None if any(part.startswith(".") for part in parts) else "/".join(parts)


def _git(record: RunRecord) -> str:
    if record.git is None:
        return ""
    more = [record.git.branch, "with changes" if record.git.dirty else None]
    told = ", ".join(part for part in more if part)
    return f"{record.git.revision[:12]} ({told})" if told else record.git.revision[:12]


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


def preview(ref: str) -> RunPreview:
    return RunPreview(**api.attach(ref).deletion().model_dump())


def submit(operations: Operations, body: SubmitBody, *, root: Path) -> OperationInfo:
    """Raises ConfigError at once; what takes a while goes on as an operation."""
    path = None if body.path is None else below(root, body.path, must_exist=body.text is None)
    if path is None and body.text is None:
        raise RequestError("give a path or a text to submit", status=422)
    config = _load(body, path)
    folder = below(root, body.workspace) if body.workspace is not None else None
    workspace = folder or (path.parent if path is not None else root)
    cluster = api.cluster(body.cluster)
    shown = path.name if path is not None and path.parent == workspace else body.path

    def work(tell: Progress) -> dict[str, Any]:
        tell("Packing the workspace and uploading what the cluster lacks")
        changes = as_mapping(body.overrides)
        run = cluster.submit_config(
            config, workspace=workspace, config_path=shown, overrides=changes
        )
        return {"run_id": run.id}

    return operations.start("submit", config.name, work)


def _load(body: SubmitBody, path: Path | None) -> TrainingConfig:
    if body.text is not None:
        name = body.path or "the text"
        return training_config_from_text(body.text, body.overrides, name=name)
    assert path is not None
    return load_training_config(path, body.overrides)


def resubmit(operations: Operations, ref: str, body: ResubmitBody) -> OperationInfo:
    """A new run with a run's config, changed. Raises ConfigError at once."""
    run = api.attach(ref)
    record = run.record
    config = (
        training_config_from_dict(record.config, body.overrides)
        if body.text is None
        else training_config_from_text(body.text, body.overrides, name="the edited config")
    )
    cluster = api.cluster(body.cluster or record.cluster)

    def work(tell: Progress) -> dict[str, Any]:
        tell(f"Submitting {config.name} to cluster {cluster.name}")
        again = cluster.submit_config(
            config,
            workspace=Path(record.workspace_root),
            config_path=record.config_path,
            overrides=as_mapping(body.overrides),
            parent=run.id,
        )
        return {"run_id": again.id}

    return operations.start("resubmit", run.id, work)


def stop(operations: Operations, ref: str) -> OperationInfo:
    run = api.attach(ref)
    line = "Asking for a stop; a checkpoint is saved first"
    return _act(operations, "stop", run, run.stop, line=line)


def retry(operations: Operations, ref: str) -> OperationInfo:
    """Raises RunStateError at once when the run is on."""
    run = api.attach(ref)
    line = "Handing the run to its cluster again, from its last checkpoint"
    return _act(operations, "retry", run, run.retry, line=line)


def _act(
    operations: Operations, kind: str, run: Run, act: Callable[[], object], *, line: str
) -> OperationInfo:
    def work(tell: Progress) -> dict[str, Any]:
        tell(line)
        act()
        return {"run_id": run.id}

    return operations.start(kind, run.id, work)


def delete(operations: Operations, ref: str) -> OperationInfo:
    """Checkpoints may be large: the folder goes in the background."""
    run = api.attach(ref)
    if run.attempts and run.state not in TERMINAL:
        raise RunStateError(
            f"Run {run.id} is {run.state}; only an ended run can be deleted",
            remedy="stop it and wait for its end",
        )

    def work(tell: Progress) -> dict[str, Any]:
        tell("Removing the run's folder")
        run.delete()
        return {"run_id": run.id}

    return operations.start("delete-run", run.id, work)
