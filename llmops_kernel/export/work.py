"""An export, from its job to the last file."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from llmops_kernel.export.gguf_file import write_gguf
from llmops_kernel.export.hub import write_hub, write_manifest
from llmops_kernel.export.vllm import write_triton, write_vllm
from llmops_kernel.export.weights import DOWNLOAD, Located, Progress, locate, write_merged
from llmops_kernel.store.export_job import ExportJob, ExportLine


def run(job: ExportJob, progress: Progress) -> ExportLine:
    """Write the job's folder; return the last line. Raises ExportError, ModelError."""
    folder = Path(job.folder)
    located = locate(job)
    line = _TARGETS[job.target](job, located, folder, progress)
    shutil.rmtree(folder / DOWNLOAD, ignore_errors=True)
    write_manifest(folder, job)
    return line


def _merged(job: ExportJob, located: Located, folder: Path, progress: Progress) -> ExportLine:
    notes = write_merged(job, located, folder, progress)
    name = job.source.auto_class
    command = (
        f"from transformers import {name}, AutoTokenizer\n"
        f"model = {name}.from_pretrained({job.final!r})\n"
        f"tokenizer = AutoTokenizer.from_pretrained({job.final!r})"
    )
    return ExportLine(kind="done", notes=notes, command=command)


_TARGETS: dict[str, Callable[[ExportJob, Located, Path, Progress], ExportLine]] = {
    "merged": _merged,
    "vllm": write_vllm,
    "gguf": write_gguf,
    "triton": write_triton,
    "hub": write_hub,
}
