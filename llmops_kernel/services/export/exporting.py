"""Exports a run: checks everything, has the work done in a scratch folder, then renames it."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from llmops_kernel.errors import ExportError
from llmops_kernel.providers.protocol import Progress
from llmops_kernel.services.export.facts import card_facts
from llmops_kernel.services.export.options import Export, Options
from llmops_kernel.services.export.process import run_job
from llmops_kernel.services.export.source import (
    Problems,
    check_fit,
    check_options,
    check_packages,
    check_space,
    check_target,
    find_source,
    raise_problems,
)
from llmops_kernel.services.runs import Run
from llmops_kernel.store.export_job import MANIFEST, ExportJob, ExportLine, ModelSource
from llmops_kernel.store.journal.training_view import TrainingView
from llmops_kernel.store.journal.view import RunView

_MAX_CHECK_TOKENS = 64


def export_run(
    run: Run,
    options: Options,
    *,
    progress: Progress | None = None,
    do: Callable[..., ExportLine] = run_job,
) -> Export:
    """Write a run's result for serving; return what was written and how to use it.

    `do` does the job, as `run_job` does in a process of its own.

    Raises ExportError with all that prevents it, before anything is done. Nothing is left of an
    export that fails or is interrupted.
    """
    record, view = run.record, run.view
    problems = Problems()
    check_options(options, problems)
    source = find_source(record, view, attempts=run.attempts, base=options.base, problems=problems)
    check_packages(options, source, problems=problems)
    final = None if options.to == "hub" else _final(run.id, options)
    if source is not None:
        check_fit(options, source, problems)
    if final is not None:
        check_target(final, options, problems)
    if source is not None:
        check_space(final or Path(tempfile.gettempdir()), options, source, problems)
    raise_problems(problems)
    if source is None:
        raise ExportError(f"Run {run.id} has no result.", remedy="choose another: llmops runs")
    with _scratch(final) as scratch:
        job = _job(run, view, source, options, scratch=scratch, final=final)
        line = do(job, progress=progress)
        sizes = _file_sizes(scratch)
        if final is not None:
            _put_in_place(scratch, final)
    return _export(job, line, final, sizes)


def _final(run_id: str, options: Options) -> Path:
    path = options.path or f"{run_id}-{options.to}"
    return Path(path).expanduser().absolute()


def _job(
    run: Run,
    view: RunView,
    source: ModelSource,
    options: Options,
    *,
    scratch: Path,
    final: Path | None,
) -> ExportJob:
    record = run.record
    data, evaluation = record.config.get("data"), record.config.get("evaluation")
    new_tokens = _number(evaluation, "max_new_tokens") or 24
    trained = _number(data, "max_length")
    return ExportJob.model_validate(
        {
            "target": options.to,
            "source": source,
            "card": card_facts(record, view, base=source.base),
            "folder": str(scratch),
            "final": str(final or options.path or options.repo),
            "name": options.name or re.sub(r"[^\w.-]+", "-", record.name) or "model",
            "dtype": options.dtype,
            "gguf_type": options.quantization,
            "keep_adapter": options.lora,
            "prompts": _prompts(view),
            "check": max(0, options.check),
            "max_new_tokens": min(new_tokens, _MAX_CHECK_TOKENS),
            "max_length": None if trained is None else trained + new_tokens,
            "repo": options.repo,
            "url": options.path if options.to == "hub" else None,
            "private": not options.public,
            "replace": options.force,
        }
    )


def _number(section: Any, name: str) -> int | None:
    number = section.get(name) if isinstance(section, dict) else None
    return number if isinstance(number, int) else None


def _prompts(view: RunView) -> tuple[str, ...]:
    """Return prompts of the last evaluation, as the model got them."""
    if not isinstance(view, TrainingView) or not view.evals:
        return ()
    return tuple(
        sample["prompt"] for sample in view.evaluations[-1].samples if sample.get("prompt")
    )


@contextmanager
def _scratch(final: Path | None) -> Iterator[Path]:
    """Yield a folder beside the final one; it is gone afterwards, whatever happens."""
    above = Path(tempfile.gettempdir()) if final is None else final.parent
    name = "llmops" if final is None else final.name
    new_folders = [parent for parent in (above, *above.parents) if not parent.exists()]
    scratch = above / f".{name}.{secrets.token_hex(4)}.part"
    try:
        scratch.parent.mkdir(parents=True, exist_ok=True)
        scratch.mkdir(mode=_mode(final))
        yield scratch
    except OSError as error:
        raise ExportError(
            f"{error.filename or scratch} cannot be written: {error.strerror or error}",
            remedy="free some space, or choose another folder with --path",
        ) from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
        for folder in new_folders:  # Only those that this export made and that are empty again.
            if folder.is_dir() and not any(folder.iterdir()):
                folder.rmdir()


def _mode(final: Path | None) -> int:
    """Return the mode of the folder that is written, less the umask's.

    On its way to the hub it is in a folder that all users share, and nobody else is to read it.
    An earlier export that its user closed to others stays closed.
    """
    if final is None:
        return 0o700
    return stat.S_IMODE(final.stat().st_mode) | 0o700 if final.exists() else 0o777


def _put_in_place(scratch: Path, final: Path) -> None:
    """Rename the whole folder; an earlier export leaves only when the new one is in its place."""
    if not final.exists():
        scratch.rename(final)
        return
    old = final.with_name(f".{final.name}.{secrets.token_hex(4)}.old")
    scratch.chmod(_mode(final))  # Whatever the umask is.
    final.rename(old)
    try:
        scratch.rename(final)
    except OSError:
        old.rename(final)
        raise
    shutil.rmtree(old, ignore_errors=True)


def _file_sizes(folder: Path) -> dict[str, int]:
    """Return the size of each file, without the manifest."""
    return {
        file.relative_to(folder).as_posix(): file.stat().st_size
        for file in sorted(folder.rglob("*"))
        if file.is_file() and not os.path.basename(file).startswith(".") and file.name != MANIFEST
    }


def _export(job: ExportJob, line: ExportLine, final: Path | None, sizes: dict[str, int]) -> Export:
    return Export(
        run_id=job.card.run_id,
        target=job.target,
        path=final,
        location=line.location or job.final,
        files=tuple(sizes),
        size_bytes=sum(sizes.values()),
        notes=line.notes,
        command=line.command,
    )
