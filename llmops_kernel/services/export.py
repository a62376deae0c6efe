"""Exports a run: checks everything, has the work done in a scratch folder, then renames it."""

from __future__ import annotations

import json
import math
import os
import re
import secrets
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from pydantic import ValidationError

from llmops_kernel import errors
from llmops_kernel.errors import ExportError, LLMOpsError
from llmops_kernel.hardware.precision import AUTO
from llmops_kernel.providers.protocol import Progress
from llmops_kernel.services.export_source import (
    Export,
    Options,
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
from llmops_kernel.store.export_job import MANIFEST, CardFacts, ExportJob, ExportLine, ModelSource
from llmops_kernel.store.journal.training_view import TrainingView
from llmops_kernel.store.journal.view import RunView
from llmops_kernel.store.package.hashes import digest_of
from llmops_kernel.store.record import RunRecord

_WORK = "llmops_kernel.export"
"""A string: the module imports torch."""
_END_WITHIN_S = 10.0


def run_job(job: ExportJob, *, progress: Progress | None) -> ExportLine:
    """Do the job and return its last line. Raises ExportError, ModelError or StoreError.

    Ctrl-C ends the process as well.
    """
    with tempfile.TemporaryFile("w+") as log:
        # A session of its own: Ctrl-C reaches this process alone, which then ends the other.
        process = subprocess.Popen(
            [sys.executable, "-m", _WORK],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=None if os.environ.get("LLMOPS_DEBUG") == "1" else log,
            text=True,
            env={**os.environ, "HF_HUB_DISABLE_PROGRESS_BARS": "1", "TQDM_DISABLE": "1"},
            start_new_session=True,
        )
        try:
            line = _follow(process, job, progress)
            process.wait()
        finally:
            _end(process)
        if line is None:
            raise _death_error(process.returncode, log)
    if line.kind == "failed":
        raise _error(line)
    return line


def _follow(
    process: subprocess.Popen[str], job: ExportJob, progress: Progress | None
) -> ExportLine | None:
    """Pass the job on; return the last line, None if the process ended without one."""
    if process.stdin is None or process.stdout is None:
        return None
    with suppress(BrokenPipeError):
        # Stays open: the process ends when it is closed, also when this one was killed.
        process.stdin.write(job.model_dump_json() + "\n")
        process.stdin.flush()
    for text in process.stdout:
        with suppress(ValidationError):
            line = ExportLine.model_validate_json(text)
            if line.kind != "progress":
                return line
            if progress is not None:
                progress(line.text)
    return None


def _end(process: subprocess.Popen[str]) -> None:
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(_END_WITHIN_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            with suppress(OSError):
                stream.close()


def _death_error(code: int, log: IO[str]) -> ExportError:
    log.seek(0)
    last = (log.read().strip().splitlines() or ["no message"])[-1]
    end = f"was killed by signal {-code}" if code < 0 else f"exited with {code}"
    memory = code == -9
    return ExportError(
        f"The process that exports {end}: {last}",
        remedy="free some memory: the whole model is loaded" if memory else "llmops doctor",
    )


def _error(line: ExportLine) -> LLMOpsError:
    kind = getattr(errors, line.error, ExportError)
    error: LLMOpsError = kind(line.text, remedy=line.remedy)
    return error


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


# --- Facts of the model card, read from the record and the journal of a run ---


_SETTINGS = ("objective", "method", "optimizer", "training", "parallelism")
_MODEL_SETTINGS = ("run", "step", "dtype", "attention", "attn_implementation", "revision")


def card_facts(record: RunRecord, view: RunView, *, base: str) -> CardFacts:
    """Return what is known; nothing is guessed."""
    config = record.config
    return CardFacts(
        run_id=record.run_id,
        name=record.name,
        kind=record.kind,
        created=time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(record.created_s)),
        base=base,
        method=str(_section(config, "method").get("type", "")),
        settings=_settings(config) | _dtype(config, view),
        data=_data(record, view),
        state=view.state,
        config_hash=digest_of(json.dumps(config, sort_keys=True).encode()),
        code_hash=record.code_hash,
        git=_git(record),
        **(_measured(view, record) if isinstance(view, TrainingView) else {}),
    )


def _measured(view: TrainingView, record: RunRecord) -> dict[str, Any]:
    start, last = view.start, view.evals[-1] if view.evals else None
    metrics = {name: value for name, value in last.metrics.items()} if last else {}
    return {
        "steps": view.last_step,
        "total_steps": view.total_steps or None,
        "last_loss": _finite(view.loss),
        "metrics": {name: value for name, value in metrics.items() if math.isfinite(value)},
        "metrics_step": last.step if last else None,
        "metrics_rows": (last.num_rows or None) if last else None,
        "device": start.device if start else "",
        "workers": start.num_workers if start else None,
        "versions": dict(start.versions) if start and start.versions else dict(record.versions),
    }


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that decide what was learnt, by dotted name."""
    settings = {
        f"{section}.{name}": _plain(value)
        for section in _SETTINGS
        for name, value in _section(config, section).items()
        if not isinstance(value, Mapping)
    }
    if reference := _section(_section(config, "objective"), "reference"):
        settings["objective.reference"] = reference.get("run") or _shown(str(reference.get("id")))
    model, data = _section(config, "model"), _section(config, "data")
    settings |= {f"model.{name}": model.get(name) for name in _MODEL_SETTINGS if name in model}
    names = ("max_length", "packing", "loss_on", "format", "shuffle")
    settings |= {f"data.{name}": data[name] for name in names if name in data}
    settings |= {"seed": config["seed"]} if "seed" in config else {}
    return {name: value for name, value in settings.items() if value is not None}


def _dtype(config: Mapping[str, Any], view: RunView) -> dict[str, str]:
    """Return the number format that `auto` was in this run; empty where the config names one."""
    start = view.start if isinstance(view, TrainingView) else None
    is_auto = _section(config, "model").get("dtype") == AUTO
    return {"model.dtype": f"{start.dtype} (auto)"} if is_auto and start else {}


def _plain(value: Any) -> Any:
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else value


def _section(config: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    section = config.get(name)
    return section if isinstance(section, Mapping) else {}


def _data(record: RunRecord, view: RunView) -> tuple[dict[str, Any], ...]:
    """Return training and evaluation data: rows as the run counted them, hash of the file."""
    data = _section(record.config, "data")
    start = view.start if isinstance(view, TrainingView) else None
    counts = {"train": start.num_rows if start else 0, "eval": start.num_eval_rows if start else 0}
    labels = {"train": "training", "eval": "evaluation"}
    return tuple(
        {
            "role": labels[role],
            "source": _shown(path) + ("" if weight == 1 else f" (weight {weight:g})"),
            # With several sources only the sum of all rows was counted.
            "rows": (counts[role] or None) if isinstance(data[role], str) else None,
            "sha256_16": record.files.get(path.removeprefix("./")),
        }
        for role in labels
        for path, weight in _sources(data.get(role))
    )


def _sources(sources: Any) -> list[tuple[str, float]]:
    """Return path and weight of each source that a field of the config names."""
    if not isinstance(sources, list | tuple):
        return [(str(sources), 1)] if sources else []
    return [(str(source["path"]), source.get("weight", 1)) for source in sources]


def _shown(source: str) -> str:
    """Return a source without the folders of this machine."""
    return Path(source).name if source.startswith(("/", "~")) else source


def _git(record: RunRecord) -> str:
    if record.git is None:
        return ""
    changed = ", with changes that were not committed" if record.git.dirty else ""
    return f"{record.git.revision}{changed}"
